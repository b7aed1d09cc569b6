"""Reports on a machine, as values, and laid out as text.

Computes with the core's public functions; prints nothing and reads no file.
"""
