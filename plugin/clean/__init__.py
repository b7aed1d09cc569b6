"""Removes from a node what the plugin leaves there when it has ended.

Knows the node's folders and its Node; reads no machine, serves no device and stops no plugin.
"""

from plugin.clean.clean_node import CleanOptions, clean_node

__all__ = ["CleanOptions", "clean_node"]
