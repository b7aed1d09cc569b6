"""Tests of `plugin.machine.devices`."""

from __future__ import annotations

import pytest

from kube.errors import SettingsError
from plugin.machine import check_resource_name


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb.me", True),
        ("x/" + "a" * 61, True),
        ("x/" + "a" * 62, False),
        ("gpu", False),
        ("nvidia.com/GPU", False),
        ("nvidia.com/mig-1g.5gb+me", False),
        ("nvidia.com/gpu-", False),
        ("nvidia.com/gpu\n", False),
        ("", False),
    ],
)
def test_resource_names(name, is_good):
    """Lower-case DNS subdomains of at most 63 characters, as NVIDIA's NewResourceName checks."""
    if is_good:
        assert check_resource_name(name) == name
    else:
        with pytest.raises(SettingsError):
            check_resource_name(name)
