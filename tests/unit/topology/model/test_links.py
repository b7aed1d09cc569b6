"""The one table of link rates: its rows, and what stands in where a fact is unknown."""

import pytest

from topology.model import (
    DEFAULT_CONSTANTS,
    GA102_GENERATION,
    CpuPlatform,
    LinkKind,
    link_rate,
    pcie_rate,
    socket_rate,
)
from topology.model.links import LINK_RATES, PCIE_X16_RATES, SOCKET_RATES


@pytest.mark.parametrize(
    ("kind", "generation", "rate", "switched"),
    [
        # NCCL src/graph/topo.h at 5067397c: SM60 18, SM70 20, SM80 20, SM86 12, SM90 20.6,
        # SM100 40.1 GB/s a link; hwloc issue 574: 25 GB/s nominal for NVLink 2,
        # which V100 meshes reach.
        pytest.param(LinkKind.NVLINK, 1, 18.0, 18.0, id="P100"),
        pytest.param(LinkKind.NVLINK, 2, 25.0, 20.0, id="V100"),
        pytest.param(LinkKind.NVLINK, 3, 20.0, 20.0, id="A100"),
        pytest.param(LinkKind.NVLINK, GA102_GENERATION, 12.0, 12.0, id="A6000"),
        pytest.param(LinkKind.NVLINK, 4, 20.6, 20.6, id="H100"),
        pytest.param(LinkKind.NVLINK, 5, 40.1, 40.1, id="B200"),
        pytest.param(LinkKind.XGMI, 3, 50.0, 50.0, id="MI250"),
        pytest.param(LinkKind.XGMI, 4, 64.0, 64.0, id="MI300X"),
    ],
)
def test_link_rates_are_the_published_ones(kind, generation, rate, switched):
    """Pin each figure that ranking rests on to its source."""
    row = link_rate(kind, generation)
    assert (row.rate_gbytes_per_s, row.switched_rate_gbytes_per_s) == (rate, switched)


@pytest.mark.parametrize(
    ("kind", "generation"),
    [
        pytest.param(LinkKind.NVLINK, None, id="unknown generation"),
        pytest.param(LinkKind.NVLINK, 99, id="a generation after this table"),
        pytest.param(LinkKind.C2C, 4, id="chip to chip"),
        pytest.param(LinkKind.METAXLINK, None, id="MetaX"),
        pytest.param(LinkKind.XGMI, None, id="XGMI, product unknown"),
    ],
)
def test_an_unknown_link_is_as_slow_as_the_slowest(kind, generation):
    """Unknown must never rank best."""
    row = link_rate(kind, generation)
    slowest = min(known.switched_rate_gbytes_per_s for known in LINK_RATES)
    assert row.rate_gbytes_per_s == row.switched_rate_gbytes_per_s == slowest
    assert row.kind is kind


def test_every_row_has_a_source_and_stands_once():
    """A figure without a source, or two for one link, would be a guess."""
    assert len({(row.kind, row.generation) for row in LINK_RATES}) == len(LINK_RATES)
    for row in LINK_RATES:
        assert row.source
        assert 0 < row.switched_rate_gbytes_per_s <= row.rate_gbytes_per_s


@pytest.mark.parametrize(
    ("generation", "rate"),
    [
        pytest.param(3, 12.0, id="Gen3: PCI_BW of NCCL"),
        pytest.param(4, 24.0, id="Gen4"),
        pytest.param(5, 48.0, id="Gen5"),
        pytest.param(6, 96.0, id="Gen6"),
        pytest.param(None, 12.0, id="unknown takes the slowest in use"),
        pytest.param(0, 12.0, id="zero is no generation"),
        pytest.param(9, 12.0, id="a generation after this table"),
    ],
)
def test_pcie_rates(generation, rate):
    """PCIe doubles with each generation; unknown never ranks best."""
    assert pcie_rate(generation) == rate
    assert rate >= min(PCIE_X16_RATES.values())


@pytest.mark.parametrize(
    ("platform", "generation", "rate"),
    [
        # NCCL src/graph/topo.h at 5067397c.
        (CpuPlatform.INTEL_BDW, 3, 6.0),
        (CpuPlatform.INTEL_SKL, 3, 10.0),
        (CpuPlatform.INTEL_SPR, 5, 22.0),
        (CpuPlatform.INTEL_ERP, 5, 40.0),
        (CpuPlatform.AMD, 3, 16.0),
        (CpuPlatform.AMD, None, 16.0),
        (CpuPlatform.POWER9, 3, 32.0),
        (CpuPlatform.ARM, None, 6.0),
        pytest.param(CpuPlatform.UNKNOWN, 3, 6.0, id="Gen3 GPUs came with Broadwell"),
        pytest.param(CpuPlatform.UNKNOWN, 4, 16.0, id="Gen4 GPUs came with EPYC"),
        pytest.param(CpuPlatform.UNKNOWN, 5, 22.0, id="Gen5 GPUs came with Sapphire Rapids"),
        pytest.param(CpuPlatform.UNKNOWN, None, 6.0, id="nothing known takes the lowest"),
    ],
)
def test_socket_rates_are_those_of_nccl(platform, generation, rate):
    """A known platform has its own rate; an unknown one that of the GPUs' time, never the best."""
    assert socket_rate(platform, generation) == rate
    assert set(SOCKET_RATES) | {CpuPlatform.UNKNOWN} == set(CpuPlatform)


def test_in_switch_reduction_gains_with_every_gpu():
    """Measured on H100 at 2 GiB: 343 GB/s for two GPUs up to 473 for eight (BandPilot)."""
    gains = DEFAULT_CONSTANTS.in_switch_gain
    assert list(gains) == sorted(gains)
    ports = 18 * link_rate(LinkKind.NVLINK, 4).switched_rate_gbytes_per_s
    measured = [343, 356, 362, 410, 432, 459, 473]
    assert [round(gain * ports) for gain in gains] == pytest.approx(measured, rel=0.01)
