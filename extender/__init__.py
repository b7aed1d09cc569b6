"""The scheduler extender: which nodes can take a pod, how good they are, and which GPUs it gets.

From the top: `__main__` and the wiring; `http`, `execution`, `watch` and `ha` do I/O; `engine`
answers each verb; `bind`, `preemption`, `placement`, `state` and `snapshot` decide from values.
Everything from `engine` down can be replayed from its arguments alone.
"""
