"""A machine from a recording, with faults that can be injected while it runs.

Stands in for a vendor's reader; knows no kubelet.
"""
