"""rocm-smi and amd-smi tables, in small machines written for these tests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.machines import pairs
from topology.errors import ImportFormatError
from topology.importers.detect import FileFormat, detect_format
from topology.importers.tables.rocm import import_rocm_smi
from topology.model import MAX_GPUS, NO_LINK, AcceleratorLink, LinkKind, P2pAccess, PcieLevel

XGMI = AcceleratorLink(LinkKind.XGMI, None)


def table(heading, *rows, labels=None):
    """A table as the tools print it: column labels, then rows of cells."""
    names = labels or [f"GPU{i}" for i in range(len(rows))]
    lines = [f"==== {heading} ====", "      " + "   ".join(names)]
    lines += [f"{name}   {row}" for name, row in zip(names, rows, strict=True)]
    return "\n".join(lines) + "\n\n"


NUMA = """==== Numa Nodes ====
GPU[0]          : (Topology) Numa Node: 0
GPU[0]          : (Topology) Numa Affinity: 2
GPU 1           : (Topology) Numa Node: 1
GPU[2]          : (Topology) Numa Affinity: -1
==== End of ROCm SMI Log ====
"""
TYPES = table("Link Type between two GPUs", "0 XGMI XGMI", "XGMI 0 PCIE", "XGMI PCIE 0")
HOPS = table("Hops between two GPUs", "0 1 2", "1 0 2", "2 2 0")
WEIGHTS = table("Weight between two GPUs", "0 15 30", "15 0 40", "30 40 0")
SHOWTOPO = (
    "WARNING: AMD GPU device(s) is/are in a low-power state.\n" + WEIGHTS + HOPS + TYPES + NUMA
)


def test_showtopo():
    """XGMI at one hop is a link, at two it passes another GPU; NUMA nodes that differ are SYS."""
    topology = import_rocm_smi(SHOWTOPO, gpu_model="AMD Instinct MI100")
    assert pairs(topology.links) == [XGMI, NO_LINK, NO_LINK]
    assert [gpu.numa_node for gpu in topology.gpus] == [2, 1, None]
    assert pairs(topology.pcie) == [PcieLevel.SYS, PcieLevel.UNKNOWN, PcieLevel.UNKNOWN]
    assert topology.gpus[0].model == "AMD Instinct MI100"


def test_a_weight_of_two_hops_overrules_a_hop_count_of_one():
    """Some versions count one hop for every XGMI pair; the driver's weight is right."""
    ones = table("Hops between two GPUs", "0 1 1", "1 0 1", "1 1 0")
    assert pairs(import_rocm_smi(WEIGHTS + ones + TYPES).links) == [XGMI, NO_LINK, NO_LINK]
    assert pairs(import_rocm_smi(ones + TYPES).links) == [XGMI, XGMI, NO_LINK]


def test_weights_that_are_no_numbers_say_nothing():
    """A tool that could not read a weight prints a word."""
    text = WEIGHTS.replace("30", "N/A") + TYPES
    assert pairs(import_rocm_smi(text).links) == [XGMI, XGMI, NO_LINK]


def test_link_types_alone():
    """`--showtopotype` prints no hops: every XGMI cell counts."""
    topology = import_rocm_smi(TYPES)
    assert pairs(topology.links) == [XGMI, XGMI, NO_LINK]
    assert set(pairs(topology.pcie)) == {PcieLevel.UNKNOWN}


def test_one_node_is_no_level():
    """Two GPUs of one NUMA node may share a switch or not."""
    numa = NUMA.replace("Affinity: 2", "Affinity: 1")
    assert import_rocm_smi(TYPES + numa).pcie[0][1] is PcieLevel.UNKNOWN


def test_tables_side_by_side():
    """Three tables were retyped beside each other."""
    topology = import_rocm_smi(
        "Weight between two GPUs   Hops between two GPUs   Link Type\n"
        "     GPU0 GPU1                 GPU0 GPU1           GPU0 GPU1\n"
        "GPU0    0   15             GPU0   0    1      GPU0    0 XGMI\n"
        "GPU1   15    0             GPU1   1    0      GPU1 XGMI    0\n"
    )
    assert pairs(topology.links) == [XGMI]


def test_link_types_under_another_heading_between_error_lines():
    """Some versions print link types as weights, and errors between the rows."""
    text = TYPES.replace("Link Type", "Weight").replace(
        "GPU1   XGMI",
        "ERROR: GPU1 : Cannot read Link Weight\nGPU[1]: no\nGPU9 0 XGMI XGMI\nGPU1   XGMI",
    )
    assert pairs(import_rocm_smi(text).links) == [XGMI, XGMI, NO_LINK]


def test_log_prefixes_are_passed_over():
    """Tables are often copied out of logs."""
    text = "".join(f"[node-1 12:00] {line}\n" for line in TYPES.splitlines())
    assert pairs(import_rocm_smi(text).links) == [XGMI, XGMI, NO_LINK]


def test_hops_that_do_not_fit_are_not_used():
    """A table of hops for other GPUs, or an incomplete one, says nothing about these."""
    other = table("Hops between two GPUs", "0 2", "2 0")
    cut = "==== Hops between two GPUs ====\n GPU0 GPU1 GPU2\nGPU0 0 2 2\n"
    assert import_rocm_smi(other + cut + TYPES).links[0][1] == XGMI


def test_amd_smi_labels_rows_by_pci_address():
    """The newer tool prints addresses and SELF."""
    labels = ["0000:0c:00.0", "0000:2A:00.0"]
    text = (
        table("ACCESS TABLE:", "ENABLED ENABLED", "ENABLED ENABLED", labels=labels)
        + table("HOPS TABLE:", "0 1", "1 0", labels=labels)
        + table("LINK TYPE TABLE:", "SELF XGMI", "XGMI SELF", labels=labels)
        + table("NUMA BW TABLE:", "N/A 50000-50000", "50000-50000 N/A", labels=labels)
    )
    topology = import_rocm_smi(text)
    assert [gpu.pci_bus_id for gpu in topology.gpus] == ["0000:0c:00.0", "0000:2a:00.0"]
    assert pairs(topology.links) == [XGMI]


@pytest.mark.parametrize(
    ("words", "p2p"),
    [
        (("DISABLED", "DISABLED"), P2pAccess.NO),
        (("ENABLED", "ENABLED"), P2pAccess.YES),
        (("ENABLED", "DISABLED"), P2pAccess.UNKNOWN),
        (("N/A", "N/A"), P2pAccess.UNKNOWN),
    ],
)
def test_access_of_pairs_without_a_link_is_access_over_pcie(words, p2p):
    """The XGMI pair reaches each other in any case."""
    one, other = words
    text = table("ACCESS TABLE:", f"- ENABLED {one}", f"ENABLED - {other}", f"{one} {other} -")
    types = table("LINK TYPE TABLE:", "SELF XGMI PCIE", "XGMI SELF PCIE", "PCIE PCIE SELF")
    assert import_rocm_smi(text + types).p2p is p2p
    assert import_rocm_smi(types).p2p is P2pAccess.UNKNOWN
    cut = text.replace(f"GPU2   {one} {other} -", "")
    assert import_rocm_smi(cut + types).p2p is P2pAccess.UNKNOWN


def pair_keys(what, cells):
    """What `rocm-smi --showtopo --json` prints of pairs."""
    return {f"(Topology) {what} between DRM devices {a} and {b}": c for (a, b), c in cells.items()}


def showtopo_json(types):
    """All of its output for three cards."""
    numa = {"(Topology) Numa Node": "0", "(Topology) Numa Affinity": "2"}
    cards = {"card0": numa, "card1": {"(Topology) Numa Node": "1"}, "card2": {}}
    weights = pair_keys("Weight", {(0, 1): "15", (0, 2): "30", (1, 2): "40"})
    hops = pair_keys("Hops", {(0, 1): "1", (0, 2): "2", (1, 2): "2"})
    return json.dumps(cards | {"system": weights | hops | pair_keys("Link type", types)})


def test_json_says_the_same_as_the_tables():
    """It has a key for each pair, and a NUMA node for each card."""
    text = showtopo_json({(0, 1): "XGMI", (0, 2): "XGMI", (1, 2): "PCIE"})
    topology = import_rocm_smi(text)
    assert topology == import_rocm_smi(SHOWTOPO)
    assert detect_format(text) is FileFormat.ROCM_SMI


def test_a_single_gpu():
    """Its matrix is complete with one cell."""
    assert import_rocm_smi(table("Link Type between two GPUs", "0")).n_gpus == 1


MANY = [f"{i:04x}:00:00.0" for i in range(MAX_GPUS + 1)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(NUMA, id="showtoponuma"),
        pytest.param('{"card0": {"(Topology) Numa Node": "0"}}', id="showtoponuma as JSON"),
        pytest.param(showtopo_json({(0, 1): "XGMI", (1, 2): "PCIE"}), id="no key of a pair"),
        pytest.param(WEIGHTS + HOPS, id="no link types"),
        pytest.param(TYPES.replace("PCIE", "XXXX"), id="XXXX cells"),
        pytest.param(TYPES.replace("GPU1   XGMI 0", "GPU1   XGMI 1"), id="diagonal"),
        pytest.param(TYPES.replace("GPU2   XGMI PCIE 0", ""), id="cut off"),
        pytest.param(TYPES.replace(" PCIE 0", " PCIE"), id="a cell short"),
        pytest.param(TYPES.replace("GPU2   XGMI PCIE 0", "GPU2   PCIE PCIE 0"), id="not symmetric"),
        pytest.param("Link Type\n GPU0 GPU1 GPU1\nGPU0 0 XGMI XGMI\n", id="a column twice"),
        pytest.param(
            f"Link Type\n {' '.join(MANY)}\n{MANY[0]}{' XGMI' * len(MANY)}", id="too many GPUs"
        ),
    ],
)
def test_refused(text, check_message):
    """Each message says what is wrong."""
    with pytest.raises(ImportFormatError) as caught:
        import_rocm_smi(text)
    check_message(caught.value)


@settings(max_examples=up_to(200), deadline=2000)
@given(st.data())
def test_only_the_documented_error_comes_out(data):
    """Cut, doubled and altered pieces of a good text either import or are refused."""
    start = data.draw(st.integers(0, len(SHOWTOPO)))
    end = data.draw(st.integers(start, min(start + 60, len(SHOWTOPO))))
    piece = data.draw(
        st.sampled_from(["", "GPU0", "\n", "0", "-1", "XGMI", SHOWTOPO[start:end] * 2])
    )
    try:
        topology = import_rocm_smi(SHOWTOPO[:start] + piece + SHOWTOPO[end:])
    except ImportFormatError:
        return
    assert 1 <= topology.n_gpus <= 4


@given(st.text(alphabet="GPU0123 \nXMIE:[]"))
def test_any_text_is_imported_or_refused(text):
    """Nothing but the documented error, whatever the text."""
    try:
        import_rocm_smi(text)
    except ImportFormatError:
        return


def test_many_tables_of_many_rows_are_read_in_one_pass(check_message):
    """Hostile text must not cost tables times rows: that would be 10^9 steps here."""
    with pytest.raises(ImportFormatError) as caught:
        import_rocm_smi("GPU0 " * 40_000 + "\n" + "GPU0 0\n" * 30_000)
    check_message(caught.value)
