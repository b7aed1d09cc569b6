"""The pure core of Coterie: what a node's GPUs are, what a set of them is worth, which set is best.

Values in, values out: no clock, no I/O, no logging, no randomness. Same input, same output.
"""
