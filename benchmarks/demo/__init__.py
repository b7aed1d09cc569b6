"""The demo: pods on an embedded cluster, placed by the real extender and by its rivals.

`python -m benchmarks.demo` runs it; each module describes its part.
"""
