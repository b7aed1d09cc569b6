"""docs/configuration.md shows the extender's settings as its code has them."""

from __future__ import annotations

from tests.docs.markdown import ROOT, section
from tests.docs.settings_table import settings_section

PAGE = ROOT / "docs" / "configuration.md"


def test_settings_are_generated(check_golden):
    """A field that changes must change on the page too; `make golden` rewrites it."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), "settings")
    check_golden(PAGE, before + settings_section() + after)
