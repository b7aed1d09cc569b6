"""The node plugin: what a machine's GPUs are, and that each container gets the planned ones.

`wiring` opens connections, and `node_plugin` owns the life of the parts; `allocation`, `pods`,
`machine` and `health.state` decide from values. What the extender needs too lies in `kube` or
`topology`.
"""
