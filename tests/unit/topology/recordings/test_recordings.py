"""The shipped machines, and the format in which they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import recordings
from topology.errors import ImportFormatError, InvalidRequest
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    LinkKind,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    decode_topology,
    encode_topology,
)
from topology.model.node_topology import MeasuredPair, MeasuredSet
from topology.recordings import load_recording, parse_recording, recording_names
from topology.value import topology_digest

if TYPE_CHECKING:
    from tests.messages import CheckMessage


NAMES = recording_names()
NV1, NV2 = AcceleratorLink(LinkKind.NVLINK, 1), AcceleratorLink(LinkKind.NVLINK, 2)

SMALL = """
name = "small"
title = "three GPUs for a test"
source = ["one", "two"]
count = 3
"""


# --- the shipped machines ---


def test_the_promised_machines_are_there() -> None:
    """The demo, the simulator and the benchmarks load these by name."""
    promised = {
        *("dgx-1-p100", "dgx-1-v100", "dgx-2", "dgx-a100", "dgx-h100", "hgx-h200", "gb200-tray"),
        *("summit", "8x-a6000-bridged", "8x-rtx4090", "8x-a100-pcie-pairs", "4x-l40s"),
        *("8x-mi300x", "8x-mi50-pcie-2nic", "dgx-1-v100-dead-link", "dgx-h100-lost-links"),
    }
    assert promised <= set(NAMES)
    assert list(NAMES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_machine_is_what_its_name_says(name: str) -> None:
    """A file that was copied and half edited would be another machine under a wrong name."""
    machine = load_recording(name)
    assert machine.name == name
    assert machine.source
    counts = {"dgx-2": 16, "summit": 6, "gb200-tray": 4}
    written = re.match(r"(\d+)x-", name)
    assert machine.n_gpus == (int(written[1]) if written else counts.get(name, 8))
    assert all(gpu.model for gpu in machine.gpus)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_machine_survives_the_annotation(name: str) -> None:
    """Simulated nodes publish these machines through the codec."""
    machine = load_recording(name)
    text = encode_topology(machine)
    assert decode_topology(text) == machine
    assert len(text) < 2048


def test_shipped_machines_are_different_types() -> None:
    """Two names for one machine type would say that something differs where nothing does."""
    assert len({topology_digest(load_recording(name)) for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_pcie_levels_of_a_shipped_machine_form_a_tree(name: str) -> None:
    """PCIe is a tree, so of the levels of three devices the two farthest are equal."""
    machine = load_recording(name)
    levels = [[level.rank for level in row] for row in machine.pcie]
    n = machine.n_gpus
    known = [[rank != PcieLevel.UNKNOWN.rank for rank in row] for row in levels]
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if known[i][j] and known[j][k] and known[i][k]:
                    assert levels[i][j] <= max(levels[i][k], levels[k][j]), (i, j, k)
    for nic in machine.nics:
        ranks = [level.rank for level in nic.levels]
        for i in range(n):
            for j in range(n):
                if PcieLevel.UNKNOWN not in {nic.levels[i], nic.levels[j], machine.pcie[i][j]}:
                    assert ranks[i] <= max(ranks[j], levels[i][j]), (nic.name, i, j)


@pytest.mark.parametrize("name", NAMES)
def test_numa_nodes_and_levels_of_a_shipped_machine_agree(name: str) -> None:
    """GPUs of two NUMA nodes are SYS apart, those of one are nearer."""
    machine = load_recording(name)
    for i, row in enumerate(machine.pcie):
        for j, level in enumerate(row):
            numa = (machine.gpus[i].numa_node, machine.gpus[j].numa_node)
            if None not in numa and level is not PcieLevel.UNKNOWN:
                assert (level is PcieLevel.SYS) == (numa[0] != numa[1]), (i, j)


def _degrees(machine: NodeTopology) -> list[int]:
    return [sum(link.n_links or 0 for link in row) for row in machine.links]


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        pytest.param("dgx-1-p100", [4] * 8, id="P100 has 4 NVLinks, all in use"),
        pytest.param("dgx-1-v100", [6] * 8, id="V100 has 6 NVLinks, all in use"),
        pytest.param("dgx-1-v100-dead-link", [6, 6, 5, 6, 6, 6, 5, 6], id="one link down"),
        pytest.param("summit", [4] * 6, id="two of six NVLinks go to the CPU"),
        pytest.param("4x-a100-sxm", [12] * 4, id="A100 has 12 NVLinks, all in use"),
    ],
)
def test_links_of_a_shipped_machine_add_up(name: str, degrees: list[int]) -> None:
    """A wrong pair in a hand-written list shows in the number of links of its two GPUs."""
    assert _degrees(load_recording(name)) == degrees


def test_lost_links_of_a_switched_machine_touch_the_pairs_of_that_gpu_only() -> None:
    """Two GPUs on a switch reach each other at the lesser of their port counts."""
    machine = load_recording("dgx-h100-lost-links")
    assert {link.n_links for j, link in enumerate(machine.links[5]) if j != 5} == {16}
    assert machine.links[0][1].n_links == 18


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """Whoever mistyped a name wants to see the list."""
    with pytest.raises(InvalidRequest, match=r"'dgx-9'.* dgx-1-v100, "):
        load_recording("dgx-9")


# --- the format ---


def test_what_is_not_written_is_unknown() -> None:
    """A recording must not turn silence into "no link"."""
    machine = parse_recording(SMALL)
    assert machine.source == "one; two"
    assert machine.links[0][1] == UNKNOWN_LINK
    assert machine.pcie[0][1] is PcieLevel.UNKNOWN
    assert (machine.p2p, machine.cpu) == (P2pAccess.UNKNOWN, CpuPlatform.UNKNOWN)
    assert machine.gpus[0].numa_node is None


def test_links_are_read_from_pairs_groups_and_the_rest() -> None:
    """The three ways to write links cover every wiring without a matrix."""
    links = parse_recording(
        SMALL + '[links]\nkind = "nvlink"\npairs = ["0-1:2"]\nrest = "none"\n'
    ).links
    assert (links[0][1], links[1][0], links[0][2]) == (NV2, NV2, NO_LINK)
    links = parse_recording(
        SMALL + '[links]\nkind = "nvlink"\ngroups = ["0-1-2:1"]\nrest = "unknown"\n'
    ).links
    assert {links[0][1], links[0][2], links[1][2]} == {NV1}
    links = parse_recording(
        SMALL + '[links]\nkind = "xgmi"\npairs = ["0-2"]\nrest = "unknown"\n'
    ).links
    assert links[0][2] == AcceleratorLink(LinkKind.XGMI, None)
    assert links[0][1] == UNKNOWN_LINK


def test_a_fabric_gives_each_pair_the_lesser_count() -> None:
    """Ports may be one number or one for each member; a fabric that is down gives no link."""
    body = '[[fabrics]]\nkind = "nvlink"\nports = [2, 1]\ngpus = [0, 2]\nclique = "c.1"\n'
    machine = parse_recording(SMALL + body)
    assert machine.fabrics[0].ports == ((0, 2), (2, 1))
    assert (machine.links[0][2], machine.links[0][1]) == (NV1, UNKNOWN_LINK)
    machine = parse_recording(SMALL + '[[fabrics]]\nkind = "nvlink"\nports = 2\nup = false\n')
    assert machine.links[0][1] == NO_LINK
    assert not machine.fabrics[0].is_up


def test_the_nearest_level_counts() -> None:
    """Groups nest like switches do, so that a small group may be written inside a large one."""
    machine = parse_recording(
        SMALL
        + '[pcie]\nPIX = [[0, 1]]\nNODE = [[0, 1, 2]]\nrest = "SYS"\n'
        + '[[nics]]\nname = "a"\nPIX = [0]\nunknown = [1]\nrest = "NODE"\n'
        + '[[nics]]\nname = "b"\nSYS = [0, 1, 2]\nnuma = 1\nrdma = false\n'
    )
    assert machine.pcie[0][1] is PcieLevel.PIX
    assert machine.pcie[1][2] is PcieLevel.NODE
    assert machine.nics[0].levels == (PcieLevel.PIX, PcieLevel.UNKNOWN, PcieLevel.NODE)
    assert (machine.nics[1].numa_node, machine.nics[1].is_rdma) == (1, False)


def test_all_other_facts_are_read() -> None:
    """Each optional key reaches its field."""
    machine = parse_recording(
        SMALL
        + 'model = "NVIDIA A40"\nmemory_mib = 46068\nlink_generation = 3\nnuma = [0, 0, 1]\n'
        + 'cpu = "amd"\np2p = "yes"\n'
        + '[measured]\npairs = ["0-1:42.5"]\nsets = ["0-1-2:40"]\nmessage_bytes = 16777216\n'
        + 'nccl_version = "2.27.3"\ndate = "2026-01-31"\nsource = "all_reduce_perf"\n'
    )
    gpu = machine.gpus[2]
    assert (gpu.model, gpu.memory_mib, gpu.link_generation, gpu.numa_node) == (
        *("NVIDIA A40", 46068, 3),
        1,
    )
    assert (machine.cpu, machine.p2p) == (CpuPlatform.AMD, P2pAccess.YES)
    measured = machine.measurement
    assert measured is not None
    assert measured.pairs == (MeasuredPair(0, 1, 42.5),)
    assert measured.sets == (MeasuredSet((0, 1, 2), 40.0),)
    assert (measured.message_bytes, measured.nccl_version) == (16777216, "2.27.3")
    assert (measured.date, measured.source) == ("2026-01-31", "all_reduce_perf")


LINKS = '[links]\nkind = "nvlink"\nrest = "none"\n'


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("= 3", id="broken TOML"),
        pytest.param("a = " + "9" * 5000, id="huge integer"),
        pytest.param("a = " + "[" * 50_000, id="deep nesting"),
        pytest.param("#" * 300_000, id="too long"),
        pytest.param("", id="empty"),
        pytest.param(SMALL.replace("3", "0"), id="no GPU"),
        pytest.param(SMALL.replace("3", "true"), id="bool"),
        pytest.param(SMALL.replace('"small"', "7"), id="name type"),
        pytest.param(SMALL.replace('"small"', '" "'), id="blank name"),
        pytest.param(SMALL.replace("title", "titel"), id="typo"),
        pytest.param(SMALL.replace('["one", "two"]', "[]"), id="no source"),
        pytest.param(SMALL + "numa = [0]", id="numa length"),
        pytest.param(SMALL + 'cpu = "z80"', id="cpu"),
        pytest.param(SMALL + LINKS + 'pair = ["0-1:2"]', id="links typo"),
        pytest.param(SMALL + LINKS + 'pairs = ["0:2"]', id="one GPU"),
        pytest.param(SMALL + LINKS + 'pairs = ["1-0:2"]', id="order"),
        pytest.param(SMALL + LINKS + 'pairs = ["0-3:2"]', id="GPU 3"),
        pytest.param(SMALL + LINKS + 'pairs = ["0-1:0"]', id="no links"),
        pytest.param(SMALL + LINKS + 'pairs = ["0-1:1.5"]', id="half a link"),
        pytest.param(SMALL + LINKS + 'pairs = ["0-1:1", "0-1:2"]', id="pair twice"),
        pytest.param(
            SMALL + LINKS + 'pairs = ["0-1:1"]\n[[fabrics]]\nkind = "nvlink"\nports = 2',
            id="pair of a fabric",
        ),
        pytest.param(SMALL + '[links]\nrest = "none"\npairs = ["0-1:1"]', id="no kind"),
        pytest.param(SMALL + '[links]\nkind = "nvlink"', id="no rest"),
        pytest.param(SMALL + '[links]\nrest = "some"', id="rest of links"),
        pytest.param(SMALL + '[links]\nrest = ["none"]', id="rest type"),
        pytest.param(SMALL + "[[fabrics]]\nports = [1]", id="ports length"),
        pytest.param(SMALL + "[pcie]\nPIX = [[0, 1]]", id="no pcie rest"),
        pytest.param(SMALL + '[pcie]\nrest = "NEAR"', id="unknown level"),
        pytest.param(SMALL + "[pcie]\nrest = []", id="level type"),
        pytest.param(SMALL + '[pcie]\nPIX = [[0, 3]]\nrest = "SYS"', id="group with GPU 3"),
        pytest.param(SMALL + '[pcie]\nPIX = [[]]\nrest = "SYS"', id="empty group"),
        pytest.param(SMALL + '[[nics]]\nname = "a"\nPIX = [0]', id="NIC without rest"),
        pytest.param(SMALL + '[[nics]]\nrest = "SYS"', id="NIC no name"),
        pytest.param(SMALL + '[measured]\npairs = ["0-1"]', id="no GB/s"),
        pytest.param(SMALL + '[measured]\npairs = ["0-1:0"]', id="0 GB/s"),
        pytest.param(SMALL + "[measured]\nsize = 1", id="measured typo"),
        pytest.param(SMALL + 'model = " "', id="blank model"),
        pytest.param(SMALL + "numa = 2026-01-31", id="date as value"),
    ],
)
def test_a_recording_with_an_error_is_refused(text: str, check_message: CheckMessage) -> None:
    """A typing error in a recording must not become a wrong machine."""
    with pytest.raises(ImportFormatError) as caught:
        parse_recording(text)
    assert str(caught.value).startswith("recording: ")
    check_message(caught.value)
    assert len(str(caught.value)) < 400


@given(text=st.text())
def test_only_import_errors_come_out_of_any_text(text: str) -> None:
    """Foreign exceptions stop at this door."""
    with pytest.raises(ImportFormatError):
        parse_recording(text)


@given(data=st.data(), name=st.sampled_from(NAMES))
def test_only_import_errors_come_out_of_a_damaged_recording(data: st.DataObject, name: str) -> None:
    """Text that is nearly right reaches code that noise never does."""
    folder = Path(recordings.__file__).parent
    text = (folder / f"{name}.toml").read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.text(alphabet='019-:"[]=,. \nPIXnone', max_size=6))
    try:
        machine = parse_recording(
            text[:start] + junk + text[start + data.draw(st.integers(0, 6)) :]
        )
    except ImportFormatError:
        return
    assert isinstance(machine, NodeTopology)
