"""Benchmarks on the real control plane: etcd, API server and kube-scheduler from their sources.

They measure what Coterie costs the real scheduler beside no extender and beside one that does
nothing (`throughput`), what pending pods cost (`pending`), what a large cluster costs the extender
(`scale`), what the pods get (`placement`), and how long a group takes (`group-latency`). Figures
but the last are ratios within one run, since machines are shared; rounds of the arms are
interleaved, median and spread are reported.
"""
