"""A machine as a picture.

An end: the command line imports it, and the read API the places of its parts (`layout`).
"""
