"""Traces and streams of pods on a simulated fleet: waits, stranded GPUs, the choice of node.

Simulates time and nodes; starts no process.
"""
