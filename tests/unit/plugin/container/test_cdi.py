"""CDI: names and paths, whatever vendor's."""

from __future__ import annotations

import pytest

from plugin.container import host_path, is_cdi_device


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("GPU-8d3c", True),
        ("0", True),
        ("0:1", True),
        ("a_b.c", True),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a/b", False),
        ("a b", False),
        ("ä", False),
        ("a\n", False),
    ],
)
def test_device_names(name, is_valid):
    """The rules of CDI's own parser."""
    assert is_cdi_device(name) is is_valid


@pytest.mark.parametrize("root", ["/run/nvidia/driver", "/run/nvidia/driver/"])
def test_host_path(root):
    """A root may end in a slash."""
    assert host_path(root, "/dev/nvidia0") == "/run/nvidia/driver/dev/nvidia0"
