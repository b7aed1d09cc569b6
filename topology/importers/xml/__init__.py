"""Importers of XML: NCCL's topology and hwloc.

Text to a topology; knows no file.
"""
