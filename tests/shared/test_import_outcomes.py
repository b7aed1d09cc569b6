"""What becomes of each of the 235 public recordings: the committed table, checked.

`import_outcomes.tsv` has one row a file: whether it gives a topology or is refused and why (a
phrase of the message), the number of GPUs, whether links and PCIe levels are known for all, some or
no pairs ("-": one GPU has no pairs), the number of NICs, and what the links are: direct, switched,
none (known to be none) or unknown. The rows were read off the files by eye, and the counts of GPUs
and NICs taken from the files' own columns and XML elements.
"""

from __future__ import annotations

import csv
import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from topology.errors import ImportFormatError
from topology.importers import FileFormat, import_text
from topology.importers.detect import detect_format
from topology.model import PcieLevel, decode_topology, encode_topology

pytestmark = pytest.mark.shared

TABLE = Path(__file__).with_name("import_outcomes.tsv")


def read_table(path):
    """Rows of a tab-separated table, as dictionaries."""
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


OUTCOMES = {row["file"]: row for row in read_table(TABLE)}
IMPORTED = sorted(name for name, row in OUTCOMES.items() if row["outcome"] == "topology")


@pytest.fixture(scope="module")
def recordings(shared):
    """Folder of the recordings."""
    return shared / "topologies"


@pytest.fixture(scope="module")
def index(recordings):
    """What the collection's own index says about each file."""
    return {row["file"]: row for row in read_table(recordings / "INDEX.tsv")}


def share(known):
    """How many of the pairs: all, some or none; "-" where there is no pair."""
    if not known:
        return "-"
    return "all" if all(known) else "some" if any(known) else "none"


def shape(topology, links):
    """What the links are."""
    if not links:
        return "-"
    if topology.fabrics:
        return "switched"
    if any(link.is_up for link in links):
        return "direct"
    return "none" if all(link.is_known for link in links) else "unknown"


def outcome(text):
    """The columns of the table for one text, with the whole message of a refusal."""
    try:
        topology = import_text(text)
    except ImportFormatError as error:
        nothing = dict.fromkeys(["gpus", "links", "pcie", "nics", "fabric"], "-")
        return {"outcome": "refused", **nothing, "reason": str(error)}
    pairs = list(combinations(range(topology.n_gpus), 2))
    links = [topology.links[i][j] for i, j in pairs]
    return {
        "outcome": "topology",
        "gpus": str(topology.n_gpus),
        "links": share([link.is_known for link in links]),
        "pcie": share([topology.pcie[i][j] is not PcieLevel.UNKNOWN for i, j in pairs]),
        "nics": str(len(topology.nics)),
        "fabric": shape(topology, links),
        "reason": "-",
    }


def test_the_table_has_exactly_the_files_of_the_collection(index):
    """A file that the table leaves out would never be looked at."""
    assert sorted(OUTCOMES) == sorted(index)
    assert len(OUTCOMES) == 235


@pytest.mark.parametrize("name", sorted(OUTCOMES))
def test_each_file_comes_out_as_the_table_says(recordings, name):
    """Every recording of every tool and vintage is read or refused for the stated reason."""
    expected = OUTCOMES[name]
    found = outcome((recordings / name).read_text(encoding="utf-8"))
    assert expected["reason"] in found["reason"]
    assert {**found, "file": name, "reason": expected["reason"]} == expected


@pytest.mark.parametrize("name", IMPORTED)
def test_the_index_counts_the_same_gpus(index, name):
    """The collection was counted independently; what is imported has all GPUs and no more."""
    assert OUTCOMES[name]["gpus"] == index[name]["gpu_count"]


WITHOUT_GPUS = [
    "hwloc/24em64t-2n6c2t-pci.xml",  # GPU-class PCI devices that no driver has taken
    "hwloc/nvidia-dgx-gb10.xml",  # the index counts the GB10's GPU, which is no PCI device
    "nccl-xml/aws-g5.48xl-topo.xml",  # the index counts 8, the file has CPUs and bridges
    "nccl-xml/aws-p5.48xl-topo.xml",
]


def test_the_files_that_hold_no_gpu_are_these():
    """A machine without GPUs is no recording of a GPU machine, whatever an index counts."""
    found = [name for name, row in OUTCOMES.items() if "holds no GPU" in row["reason"]]
    assert sorted(found) == WITHOUT_GPUS


@pytest.mark.parametrize(
    "name", [name for name in IMPORTED if name.startswith(("smi/", "other/metax"))]
)
def test_the_index_counts_the_same_columns(index, name):
    """NIC columns of `topo -m` were counted independently, too."""
    counted = re.search(r"check: (\d+) GPU \+ (\d+) NIC columns", index[name]["notes"])
    if counted is not None:
        assert counted.groups() == (OUTCOMES[name]["gpus"], OUTCOMES[name]["nics"])


def test_the_nvlink_matrices_split_into_direct_and_switched():
    """The rule by row sums splits the collection cleanly; the two refused ones are switched."""
    shapes = [OUTCOMES[name]["fabric"] for name in IMPORTED if name.startswith("smi/")]
    assert (shapes.count("direct"), shapes.count("switched")) == (23, 18)


def test_no_nccl_file_turns_silence_into_no_nvlink(recordings):
    """Cloud providers leave NVLink to NVML: a file without a link element says nothing about it."""
    for name in IMPORTED:
        text = (recordings / name).read_text(encoding="utf-8")
        if name.startswith("nccl-xml/") and not re.search(r"<(nvlink|xgmi)\b", text):
            assert OUTCOMES[name]["links"] == "none", name


@pytest.mark.parametrize("name", IMPORTED)
def test_what_is_imported_survives_the_annotation(recordings, name):
    """A recording is published as an annotation, and that is one of the formats read."""
    topology = import_text((recordings / name).read_text(encoding="utf-8"))
    text = encode_topology(topology)
    assert decode_topology(text) == topology
    assert detect_format(text) is FileFormat.ANNOTATION
    assert import_text(text) == topology


# --- Recordings of one machine agree ---------------------------------------------------------

SAME_MACHINE = {
    "AWS p4d.24xlarge": [
        "smi/aws-p4d.24xlarge.txt",
        "nccl-xml/aws-p4d-24xl-topo.xml",
        "nccl-xml/uccl-p4d.xml",
        "hwloc/nixl-p4d.24xl.xml",
    ],
    "AWS p4de.24xlarge": ["smi/aws-p4de.24xlarge.txt", "nccl-xml/aws-p4de-24xl-topo.xml"],
    "AWS p5.48xlarge": [
        "smi/aws-p5.48xlarge.txt",
        "nccl-xml/aws-p5.48xl-topo-2026.xml",
        "hwloc/nixl-p5.48xl.xml",
    ],
    "AWS g5.48xlarge": ["smi/aws-g5.48xlarge.txt", "hwloc/nixl-g5.48xl.xml"],
    "Azure NC96ads A100 v4": [
        "smi/a100pcie-4x-nv12-nps4.txt",
        "nccl-xml/azure-ncv4-topo.xml",
    ],
    "Azure ND96asr v4": ["nccl-xml/azure-ndv4-topo.xml", "nccl-xml/superbench-ndv4-topo.xml"],
    "Azure ND96isr H100 v5": ["nccl-xml/azure-ndv5-topo.xml", "nccl-xml/superbench-ndv5-topo.xml"],
    "DGX A100": [
        "smi/dgxa100-8x-12nic-truncated.txt",
        "nccl-xml/mlperf0.7-DellEMC-DGXA100-nic-affinity-minimal.xml",
        "nccl-xml/mlperf1.0-GIGABYTE-dgxa100_nic_affinity.xml",
        "nccl-xml/mlperf1.0-NVIDIA-dgxa100_nic_affinity.xml",
    ],
    "DGX-1 V100": ["smi/ucxpy-dgx1v-4nic.txt", "smi/msccl-dgx1v-4nic-unordered.txt"],
    "V100, other wiring": [
        "smi/bandpilot-v100-8x-markdown.txt",
        "smi/dlperf-v100-8x-alt-wiring-misaligned.txt",
    ],
    "OCI H100": ["nccl-xml/oci-H100-topology.xml", "nccl-xml/oci-H100-topology-kubernetes.xml"],
    "Lassen": ["hwloc/mpibind-coral-lassen.xml", "hwloc/mpibind-coral-lassen-hwloc1.xml"],
    "Corona": ["hwloc/mpibind-epyc-corona.xml", "hwloc/mpibind-epyc-corona-hwloc1.xml"],
    "MetaX C500": ["other/metax-c500-8x.txt", "other/metax-c500-8x-6nic.txt"],
    "RCCL 8P6L": [
        "nccl-xml/rccl-topo_8p6l.xml",
        *(f"nccl-xml/rccl-topo_8p6l_{n}nic.xml" for n in range(1, 7)),
    ],
    "RCCL 4P2H": [
        "nccl-xml/rccl-topo_4p2h.xml",
        "nccl-xml/rccl-topo_4p2h_1.xml",
        "nccl-xml/rccl-topo_4p2h_2nic.xml",
    ],
    "RCCL 8P Rome NPS=2": [
        "nccl-xml/rccl-topo_8p_rome_n2.xml",
        "nccl-xml/rccl-topo_8p_rome_n2_2.xml",
    ],
    "RCCL 8P TS1 NPS=4, alternative": [
        "nccl-xml/rccl-topo_8p_ts1_n4_1.xml",
        "nccl-xml/rccl-topo_8p_ts1_n4_2.xml",
    ],
    "RCCL 8P PCIe": [
        "nccl-xml/rccl-topo_8p_pcie.xml",
        "nccl-xml/rccl-topo_8p_pcie_1.xml",
        "nccl-xml/rccl-topo_8p_pcie_2nic.xml",
    ],
    "RCCL 8P1H Trento": ["nccl-xml/rccl-topo_8p1h_2.xml", "nccl-xml/rccl-topo_8p1h_3.xml"],
}
"""Files that the index or their source says are of one machine, or of one model of machine."""

EXCEPTIONS = {
    # AWS's file was written for a PCI numbering that the recorded instance does not have
    # (0000:4f:00.0 against 0000:53:00.0 for the first GPU); levels and NICs agree.
    ("AWS p5.48xlarge", "pci_bus_id"),
    # The variants are there to move the NICs about: that is what their names count.
    ("RCCL 8P6L", "nic level"),
}
"""Machine and field where the files themselves contradict each other."""


def facts(topology):
    """What is known, one entry a fact: (field, device or pair) and value."""
    found: dict[tuple[object, ...], object] = {}
    for i, gpu in enumerate(topology.gpus):
        for name in ("model", "pci_bus_id", "numa_node"):
            found[name, i] = getattr(gpu, name)
        for j in range(i):
            link, level = topology.links[i][j], topology.pcie[i][j]
            found["link", i, j] = link.kind if link.is_known else None
            found["link count", i, j] = link.n_links if link.is_known else None
            found["level", i, j] = None if level is PcieLevel.UNKNOWN else level
    for nic in topology.nics:
        for i, level in enumerate(nic.levels):
            found["nic level", nic.name, i] = None if level is PcieLevel.UNKNOWN else level
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("machine", SAME_MACHINE)
def test_recordings_of_one_machine_agree_on_what_both_know(recordings, machine):
    """Two tools that describe one machine give the same facts, each as far as it looks."""
    known = {
        name: facts(import_text((recordings / name).read_text(encoding="utf-8")))
        for name in SAME_MACHINE[machine]
    }
    for one, other in combinations(known, 2):
        differing = {
            key: (known[one][key], known[other][key])
            for key in known[one].keys() & known[other].keys()
            if known[one][key] != known[other][key] and (machine, key[0]) not in EXCEPTIONS
        }
        assert differing == {}, (one, other)


@pytest.mark.parametrize(("machine", "field"), sorted(EXCEPTIONS))
def test_an_exception_is_still_needed(recordings, machine, field):
    """An exception that no longer hides a difference would hide the next mistake."""
    texts = [(recordings / name).read_text(encoding="utf-8") for name in SAME_MACHINE[machine]]
    known = [facts(import_text(text)) for text in texts]
    assert any(
        key[0] == field and one[key] != other[key]
        for one, other in combinations(known, 2)
        for key in one.keys() & other.keys()
    )


@pytest.mark.parametrize("machine", ["V100", "A6000", "H100_26"])
def test_a_measured_machine_reads_the_same_as_a_plain_matrix(shared, recordings, machine):
    """The measurements carry the labels once more; as CSV they are the same topology."""
    measured = (shared / "measured" / "subset_bandwidth.json").read_text(encoding="utf-8")
    labels = json.loads(measured)["machines"][machine]["topo"]
    name = f"smi/bandpilot-{machine.lower().partition('_')[0]}-8x-markdown.txt"
    text = (recordings / name).read_text(encoding="utf-8")
    assert import_text("\n".join(map(",".join, labels))) == import_text(text)
