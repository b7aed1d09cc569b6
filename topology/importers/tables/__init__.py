"""Importers of text tables: `nvidia-smi topo -m`, `rocm-smi --showtopo`, a plain matrix.

Text to a topology; knows no file.
"""
