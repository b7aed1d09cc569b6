"""The page at `/ui/`: what the read API answers, drawn in a browser.

Static files without a build step, in `static/`; they load nothing from elsewhere and call only the
routes under `/api/v1/`. Nothing here knows the engine.
"""

from __future__ import annotations

from extender.page.routes import add_page

__all__ = ["add_page"]
