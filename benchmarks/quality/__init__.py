"""How good the chosen sets are on measured nodes: efficiency, fidelity, replays of queues.

Reads measurements and queues; knows no cluster.
"""
