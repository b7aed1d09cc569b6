"""The manifests and the chart of Coterie, and what makes images and releases of it.

Nothing here ships in the wheel, and no program imports it.
"""
