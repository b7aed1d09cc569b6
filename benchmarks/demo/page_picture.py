"""A drawing as it stands in the report: as wide as its place, in the page's own fonts."""

from __future__ import annotations

import re

from markupsafe import Markup

__all__ = ["page_picture"]

_FONT = re.compile(r" ?font-family: [^;\"]*;?")
_FRAME = re.compile(r'width="[^"]*" height="[^"]*" viewBox="0 0 ([0-9.]+) ([0-9.]+)"')


def page_picture(svg: str, height: float | None = None) -> Markup:
    """An `<svg>` element without size and fonts; cut below `height` points, where that is given."""
    frame = r"\2" if height is None else f"{height:.2f}"
    fitted = _FRAME.sub(rf'viewBox="0 0 \1 {frame}"', _FONT.sub("", svg), count=1)
    return Markup(fitted)  # noqa: S704 - our own drawing, escaped there
