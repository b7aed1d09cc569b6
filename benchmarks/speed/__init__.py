"""How fast the core and the extender answer, over loopback HTTP too.

Measures; judges nothing and needs no cluster.
"""
