"""How MIG devices are named."""

from __future__ import annotations

import pytest

from plugin.nvidia.mig_profile import MigShape, mig_profile

A100 = 40 << 30
H100 = 85_520_809_984
H200 = 150_754_820_096


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "1c.3g.40gb"),
        ("NVIDIA B200 MIG 1g.23gb+me.all", "1g.23gb+me.all"),
        ("NVIDIA B200 MIG 1g.23gb-me", "1g.23gb-me"),
        ("NVIDIA H100 80GB HBM3", None),
        ("NVIDIA A100 MIG 1g.5gb and more", None),
        (None, None),
    ],
)
def test_the_profile_by_name(name, expected):
    """NVML's own name is what NVIDIA's plugin and labels say."""
    assert mig_profile(name, None, gpu_memory_bytes=None) == expected


@pytest.mark.parametrize(
    ("shape", "memory", "expected"),
    [
        (MigShape(1, 1, 4864), A100, "1g.5gb"),
        (MigShape(2, 2, 9856), A100, "2g.10gb"),
        (MigShape(3, 1, 19968), A100, "1c.3g.20gb"),
        (MigShape(7, 7, 40192), A100, "7g.40gb"),
        (MigShape(1, 1, 9984), H100, "1g.10gb"),
        (MigShape(1, 1, 16384), H200, "1g.18gb"),
        (MigShape(0, 0, 0), A100, None),
        (MigShape(1, 1, 4864), None, None),
        (MigShape(1, 1, 4864), 0, None),
    ],
)
def test_the_profile_by_size_where_the_name_is_unknown(shape, memory, expected):
    """go-nvlib's rule: eighths of the GPU's memory, rounded up."""
    assert mig_profile("", shape, gpu_memory_bytes=memory) == expected
