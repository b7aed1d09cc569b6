"""Machines drawn in characters."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from kubectl_coterie.machine import GpuOwner, draw_machine
from kubectl_coterie.machine.numbers import ranges
from kubectl_coterie.terminal import Style
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    PcieLevel,
    SwitchFabric,
    symmetric,
)
from topology.recordings import load_recording, recording_names

FREE = GpuOwner(is_free=True, pod=None, state="free", reason=None)
PLAIN = Style(is_on=False)


def draw(machine, **owners):
    """The lines; owners by `gN`, others free."""
    topology = load_recording(machine) if isinstance(machine, str) else machine
    who = [owners.get(f"g{gpu}", FREE) for gpu in range(topology.n_gpus)]
    return draw_machine(topology, who, PLAIN)


def held(pod, state="held", reason=None):
    """A GPU of a pod."""
    return GpuOwner(is_free=False, pod=pod, state=state, reason=reason)


def _pair_link(pairs, i, j):
    return pairs[j, i]


def bare(n, *, pcie=PcieLevel.UNKNOWN, numa=None, nics=(), link=NO_LINK, fabrics=()):
    """A machine of which little is known."""
    links = symmetric(n, NO_LINK, lambda *_: link)
    for fabric in fabrics:
        links = symmetric(n, NO_LINK, partial(_pair_link, dict(fabric.pair_links())))
    return NodeTopology(
        gpus=tuple(Gpu(numa_node=numa) for _ in range(n)),
        links=links,
        pcie=symmetric(n, PcieLevel.SELF, lambda *_: pcie),
        nics=tuple(nics),
        fabrics=tuple(fabrics),
    )


def test_a_mesh_with_its_pods():
    """NUMA nodes, switches with GPUs and NICs, links by number, then who has what."""
    drawn = draw(
        "dgx-1-v100",
        g0=held("ml/train", "planned"),
        g1=held("ml/train", "planned"),
        g4=held("ml/eval", reason="XID 48"),
        g5=GpuOwner(is_free=False, pod=None, state="unhealthy", reason="XID 79"),
        g6=GpuOwner(),
        g7=GpuOwner(is_free=False, pod=None, state="unhealthy"),
    )
    assert drawn == [
        "NUMA 0",
        "├─ PCIe switch   [GPU0 A] [GPU1 A]   mlx5_0",
        "└─ PCIe switch   [GPU2 ·] [GPU3 ·]   mlx5_1",
        "NUMA 1",
        "├─ PCIe switch   [GPU4 B!] [GPU5 !]   mlx5_2",
        "└─ PCIe switch   [GPU6] [GPU7 !]   mlx5_3",
        "",
        "NVLink, 2 links: 0-3  0-4  1-2  1-5  2-3  4-7  5-6  6-7",
        "NVLink, 1 link: 0-1  0-2  1-3  2-6  3-7  4-5  4-6  5-7",
        "",
        "A  ml/train   GPUs 0,1   planned",
        "B  ml/eval   GPUs 4",
        "·  free   GPUs 2,3",
        "!  unhealthy   GPU 4: XID 48",
        "!  unhealthy   GPU 5: XID 79",
        "!  unhealthy   GPU 7: no reason is known",
        "   unknown   GPUs 6",
    ]


@pytest.mark.parametrize(
    ("machine", "line"),
    [
        ("dgx-h100", "NVSwitch: GPUs 0-7, 18 links each"),
        ("dgx-h100-lost-links", "GPU5 has 16 of 18 links: 2 down"),
        ("dgx-1-v100-dead-link", "GPU2 has 5 of 6 links: 1 down"),
        ("8x-l4", "No accelerator links: GPUs reach each other over PCIe."),
        ("8x-l4", "└─ PCIe   [GPU0 ·] [GPU1 ·] [GPU2 ·] [GPU3 ·]"),
        ("8x-a6000-bridged", "└─ PCIe switches   [GPU0 ·] [GPU1 ·] [GPU2 ·] [GPU3 ·]"),
    ],
)
def test_links_and_switches_of_other_machines(machine, line):
    """A fabric is one line, and what is down is said."""
    assert line in draw(machine)


@pytest.mark.parametrize("machine", recording_names())
def test_every_gpu_and_nic_is_drawn_once(machine):
    """Whatever is known of the machine."""
    topology = load_recording(machine)
    drawn = "\n".join(draw(machine))
    for gpu in range(topology.n_gpus):
        assert drawn.count(f"[GPU{gpu} ·]") == 1
    for nic in topology.nics:
        assert f" {nic.name} " in f"{drawn} ".replace("\n", " ")


def test_unknown_numa_nodes_stand_together():
    """What is not known is not drawn as if it were."""
    drawn = draw(bare(3, link=UNKNOWN_LINK))
    assert drawn[:2] == ["NUMA node unknown", "└─ PCIe   [GPU0 ·] [GPU1 ·] [GPU2 ·]"]
    assert "Links of 3 pairs are unknown." in drawn


def test_many_gpus_of_a_switch_take_lines():
    """Eight in each; the branch goes on where more follows."""
    nic = Nic("mlx5_0", (PcieLevel.NODE,) * 9, numa_node=0)
    drawn = draw(bare(9, pcie=PcieLevel.PIX, numa=0, nics=[nic]))
    assert drawn[1].startswith("├─ PCIe switch   [GPU0 ·]")
    assert drawn[2] == "│                [GPU8 ·]"
    assert drawn[3] == "└─ NICs          mlx5_0"
    assert draw(bare(9, pcie=PcieLevel.PIX, numa=0))[2] == "                 [GPU8 ·]"


@pytest.mark.parametrize(
    ("nic", "lines"),
    [
        pytest.param(
            Nic("ib0", (PcieLevel.SYS,) * 2), ["NICs elsewhere", "└─ NICs   ib0"], id="far away"
        ),
        pytest.param(
            Nic("ib0", (PcieLevel.PHB,) * 2), ["└─ NICs   ib0"], id="of the NUMA node by its level"
        ),
        pytest.param(
            Nic("ib0", (PcieLevel.UNKNOWN,) * 2, numa_node=7),
            ["NICs elsewhere", "└─ NICs   ib0"],
            id="of a NUMA node without GPUs",
        ),
    ],
)
def test_nics_stand_in_their_numa_node_or_elsewhere(nic, lines):
    """Where they share no switch with a GPU."""
    drawn = draw(bare(2, numa=0, nics=[nic]))
    assert all(line in drawn for line in lines)


def test_a_fabric_may_be_down():
    """As without a fabric manager."""
    fabric = SwitchFabric(((0, 18), (1, 18)), is_up=False)
    assert "NVSwitch: GPUs 0,1, down" in draw(bare(2, fabrics=[fabric]))


def test_a_fabric_of_another_kind_has_its_name():
    """MetaX has switches too."""
    fabric = SwitchFabric(((0, 4), (1, 4)), kind=LinkKind.METAXLINK)
    assert "MetaXLink switch: GPUs 0,1, 4 links each" in draw(bare(2, fabrics=[fabric]))


def test_uncounted_links_are_said_to_be():
    """rocm-smi does not count them."""
    link = replace(NO_LINK, kind=LinkKind.XGMI, n_links=None)
    assert "XGMI, links not counted: 0-1" in draw(bare(2, link=link))


def test_one_gpu_has_no_links():
    """And nothing is said of them."""
    assert draw(bare(1)) == [
        "NUMA node unknown",
        "└─ PCIe   [GPU0 ·]",
        "",
        "·  free   GPUs 0",
    ]


def test_more_pods_than_letters_have_numbers():
    """After capitals and small letters."""
    topology = bare(54)
    owners = [held(f"ml/p{gpu}") for gpu in range(54)]
    drawn = "\n".join(draw_machine(topology, owners, PLAIN))
    assert "[GPU51 z]" in drawn
    assert "[GPU52 52]" in drawn


def test_pods_have_colours_and_names_are_shown_as_text():
    """Red is for what is unhealthy; a name cannot drive the terminal."""
    topology = bare(2)
    owners = [
        held("ml/\x1b[31m"),
        GpuOwner(is_free=False, pod=None, state="unhealthy", reason="XID 79"),
    ]
    drawn = "\n".join(draw_machine(topology, owners, Style(is_on=True)))
    assert "\x1b[34m[GPU0 A]\x1b[0m" in drawn
    assert "\x1b[31m[GPU1 !]\x1b[0m" in drawn
    assert "ml/?[31m" in drawn


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1], "0,1"), ([7, 0, 1, 2], "0-2,7")]
)
def test_numbers_in_a_row_are_a_range(numbers, text):
    """Two are shorter as they are."""
    assert ranges(numbers) == text
