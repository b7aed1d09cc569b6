"""Names that are cut stay apart."""

import pytest

from topology.audit.shortened import shorten


@pytest.mark.parametrize(
    ("names", "width", "expected"),
    [
        pytest.param([], 5, [], id="none"),
        pytest.param(["a", "bcd"], 3, ["a", "bcd"], id="they fit"),
        pytest.param(["abcdefgh", "x"], 5, ["ab…gh", "x"], id="in the middle"),
        pytest.param(
            ["pod-a-0-end", "pod-a-1-end"], 7, ["p…0-end", "p…1-end"], id="apart at the end"
        ),
        pytest.param(["n-0-abcdef", "n-1-abcdef"], 6, ["n-0…ef", "n-1…ef"], id="apart in front"),
        pytest.param(["aaaa", "aaaa"], 3, ["a…a", "a…a"], id="equal names"),
        pytest.param(["ab\x1bcd"], 5, ["ab?cd"], id="no control characters"),
        pytest.param(["abc"], 1, ["…"], id="one column"),
    ],
)
def test_where_names_are_cut(names, width, expected):
    """Where most of them differ, and else in the middle."""
    assert shorten(names, width) == expected
