"""The node plugin: what a machine's GPUs are, and that each container gets the planned ones.

Layers, top to bottom: `__main__` wires; `agent` owns the life of the parts; `server`, `publisher`,
`health_watch` and the readers are thin shells; `inventory`, `identity`, `choice`, `access`,
`health` and `holdings` decide from values. The plugin never imports the extender, nor the other
way round: what both need lies in `kube` or `topology`.
"""
