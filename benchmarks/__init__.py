"""Measurements of Coterie against its rivals; nothing here is imported by the product."""
