"""The measured machines: what is read, what is refused, and renumbering."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import pytest

from benchmarks.errors import BadData, MissingData
from benchmarks.measured import (
    fill_levels,
    load_machines,
    relabel_machine,
    relabel_topology,
    with_measured_pairs,
)
from topology.model import LinkKind, PcieLevel
from topology.recordings import load_recording

LABELS = [["X", "NV2", "SYS"], ["NV2", "X", "SYS"], ["SYS", "SYS", "X"]]
MEASURED = {"01": 42.0, "02": 4.0, "12": 5.0, "012": 6.0}


def write(folder, name="V100", topo=LABELS, measured=MEASURED):
    """Write a file of one machine in the data's format."""
    (folder / "measured").mkdir()
    document = {"machines": {name: {"topo": topo, "busbw_GBps": measured}}}
    (folder / "measured" / "subset_bandwidth.json").write_text(json.dumps(document))
    return folder


def test_reads_labels_and_bandwidth(tmp_path):
    """NV# becomes a link with an unknown PCIe level, SYS a level without a link."""
    (machine,) = load_machines(write(tmp_path))
    topology = machine.topology
    assert machine.gbytes_per_s == {0b011: 42.0, 0b101: 4.0, 0b110: 5.0, 0b111: 6.0}
    assert (topology.links[0][1].kind, topology.links[0][1].n_links) == (LinkKind.NVLINK, 2)
    assert topology.pcie[0][1] is PcieLevel.UNKNOWN
    assert topology.links[0][2].kind is LinkKind.NONE
    assert topology.pcie[0][2] is PcieLevel.SYS
    assert topology.gpus[0].model == "Tesla V100-SXM2-32GB"
    assert machine.message_bytes is None


def test_the_h100_is_switched(tmp_path):
    """Its NV16 are ports of a fabric, and its message size is known."""
    labels = [["X", "NV16"], ["NV16", "X"]]
    (machine,) = load_machines(write(tmp_path, "H100_26", labels, {"01": 206.0}))
    assert machine.topology.fabrics[0].ports == ((0, 16), (1, 16))
    assert machine.message_bytes == 16 << 20


def test_a_missing_file_says_how_to_name_the_folder(tmp_path):
    """The message names the path and the option."""
    with pytest.raises(MissingData, match=r"subset_bandwidth\.json cannot be read; .*--shared"):
        load_machines(tmp_path)


@pytest.mark.parametrize(
    ("topo", "measured", "message"),
    [
        pytest.param(LABELS, {"01": 42.0}, "has 1 sets, expected all 4", id="sets are missing"),
        pytest.param(None, MEASURED, "lacks 'topo'", id="no matrix"),
        pytest.param([["X", "NVX"], ["NVX", "X"]], {"01": 1.0}, "link label 'NVX'", id="label"),
    ],
)
def test_refuses_bad_machines(tmp_path, topo, measured, message):
    """A file that does not hold every set, or unknown labels, is refused with the reason."""
    with pytest.raises(BadData, match=message):
        load_machines(write(tmp_path, topo=topo, measured=measured))


def test_relabelling_moves_labels_and_measurements_together(tmp_path):
    """New GPU i is old GPU order[i], in links, measured sets and measured pairs alike."""
    (machine,) = load_machines(write(tmp_path))
    order = (2, 0, 1)
    moved = relabel_machine(machine, order)
    for a, b in combinations(range(3), 2):
        old = 1 << order[a] | 1 << order[b]
        assert moved.topology.links[a][b] == machine.topology.links[order[a]][order[b]]
        assert moved.topology.pcie[a][b] == machine.topology.pcie[order[a]][order[b]]
        assert moved.gbytes_per_s[1 << a | 1 << b] == machine.gbytes_per_s[old]
    published = relabel_topology(with_measured_pairs(machine), order)
    assert published.measurement == with_measured_pairs(moved).measurement


@pytest.mark.shared
def test_loads_the_real_file(shared):
    """Three machines of eight GPUs with 247 sets each."""
    machines = load_machines(shared)
    assert [m.name for m in machines] == ["V100", "A6000", "H100_26"]
    assert {(m.topology.n_gpus, len(m.gbytes_per_s)) for m in machines} == {(8, 247)}


def test_hidden_levels_are_filled_from_a_machine_with_the_same_links():
    """A DGX-1 numbered otherwise, its NVLink pairs' levels hidden, gets the right ones back."""
    whole = relabel_topology(load_recording("dgx-1-v100"), (5, 2, 7, 0, 1, 6, 3, 4))
    hidden = replace(
        whole,
        pcie=tuple(
            tuple(
                PcieLevel.UNKNOWN if link.is_up else level
                for level, link in zip(levels, links, strict=True)
            )
            for levels, links in zip(whole.pcie, whole.links, strict=True)
        ),
    )
    assert hidden.pcie != whole.pcie
    assert fill_levels(hidden, load_recording("dgx-1-v100")).pcie == whole.pcie
