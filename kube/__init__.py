"""The API server as both programs see it: lists, watches and the few writes that they make.

What it answers: what the cluster's nodes and pods are, as values, and whether a write was accepted.
The client library, its types and its errors do not leave this package. It decides nothing.
"""
