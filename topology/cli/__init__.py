"""`coterie-topology`: questions about one machine from the command line.

An end: nothing of the core imports it. `program` is what all three programs start with, in the
lowest package that they share.
"""
