"""The scheduler extender: which nodes can take a pod, how good they are, and which GPUs it gets.

Layers, top to bottom: `__main__` wires; `app` speaks HTTP; `engine` holds the state; `verbs`,
`candidates`, `compare`, `explain` decide from values; `wire`, `request`, `snapshot`, `ledger` are
the values. Everything below `engine` can be replayed from its arguments alone.
"""
