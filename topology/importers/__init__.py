"""Somebody else's recordings of a node, one importer per format.

What it answers: the `NodeTopology` that a text records: `topology.importers.dispatch`
(`import_text`) and `topology.importers.detect` (which format it is). Nothing is imported here, so
that a program that needs one format does not hold the parsers of all.
"""
