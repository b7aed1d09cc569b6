"""How many examples hypothesis draws for a property.

`COTERIE_EXAMPLES` chooses: `fast` (the default) for every change, `thorough` for the nightly run.
"""

from __future__ import annotations

import os

__all__ = ["FACTOR", "up_to"]

FACTORS = {"fast": 0.4, "thorough": 5.0}
FACTOR = FACTORS[os.environ.get("COTERIE_EXAMPLES", "fast")]


def up_to(n: int) -> int:
    """The `max_examples` of a test that needs `n` examples to be convincing by itself."""
    return max(round(n * FACTOR), 5)
