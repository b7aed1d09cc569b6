"""Benchmarks of the node plugin beside a real kubelet: how soon, how fast, at what cost."""
