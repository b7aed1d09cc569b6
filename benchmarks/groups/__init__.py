"""Jobs of several nodes on a recorded network: which leaf they get, how long they wait, their GB/s.

Simulates time, hosts and jobs; starts no process.
"""
