"""A machine as a picture.

An end: nothing but the command line imports it.
"""
