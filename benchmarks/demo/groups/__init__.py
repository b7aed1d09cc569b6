"""Jobs of several pods in the demo: as groups by Coterie, and pod by pod, on the same nodes.

Two outside doors only, a policy of `benchmarks.demo.policies` and the drawing of
`benchmarks.fabric_drawing`; it starts no process.
"""
