"""`coterie-topology`: questions about one machine from the command line.

An end: nothing of the core imports it.
"""
