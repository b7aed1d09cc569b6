"""What `nvidia-smi topo -m` says, in every dress it comes in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import ImportFormatError, TopologyError
from topology.importers.tables.smi import import_smi
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    LinkKind,
    P2pAccess,
    PcieLevel,
)

LEGEND = "\nLegend:\n\n  X    = Self\n  PIX  = at most a single PCIe bridge\n"
LEGEND_M = LEGEND + "  NV#  = a bonded set of # NVLinks\n"


def nvlink(n_links: int) -> AcceleratorLink:
    """A link of that many NVLinks."""
    return AcceleratorLink(LinkKind.NVLINK, n_links)


def matrix(*rows: str, header: str = "", tail: tuple[str, ...] = ()) -> str:
    """A tab-separated matrix in nvidia-smi's own layout, one string of labels a GPU."""
    names = [f"GPU{i}" for i in range(len(rows))]
    lines = ["\t" + "\t".join(names) + (f"\t{header}" if header else "")]
    for i, row in enumerate(rows):
        values = f"\t{tail[i]}" if tail else ""
        lines.append(f"GPU{i}\t" + "\t".join(f" {label} " for label in row.split()) + values)
    return "\n".join(lines) + "\n"


def switched(n: int, count: int) -> str:
    """A matrix of n GPUs, each pair with that many NVLinks."""
    return matrix(*(" ".join("X" if i == j else f"NV{count}" for j in range(n)) for i in range(n)))


PAIRS = matrix("X NV4 SYS", "NV4 X SYS", "SYS SYS X")


def prefixed(prefix: str) -> str:
    """PAIRS with something before each line."""
    return "".join(f"{prefix}{line}\n" for line in PAIRS.splitlines())


LINES = PAIRS.splitlines()
PLAIN = "        GPU0    GPU1\nGPU0     X      PHB\nGPU1    PHB      X\n"

DRESSES = [
    ("tabs", PAIRS),
    ("blanks at stops of eight", PAIRS.expandtabs(8)),
    ("blanks at stops of four, header and cells not in line", PAIRS.expandtabs(4)),
    ("single blanks", "\n".join(" ".join(line.split()) for line in PAIRS.splitlines())),
    ("line ends of Windows", PAIRS.replace("\n", "\r\n")),
    ("underline escapes", "\x1b[4m" + PAIRS.replace("GPU2\n", "GPU2\x1b[0m\n", 1)),
    ("other escapes", "\x1b[2J\x1b(B" + PAIRS.replace("GPU2\n", "GPU2\x1b[K\x1b[m\n", 1)),
    ("escapes as caret text", PAIRS.replace("GPU0", "^[[4mGPU0", 1)),
    ("escape byte lost", PAIRS.replace("GPU0", "[4mGPU0", 1)),
    ("comment marks", prefixed("# ")),
    ("comment marks stuck to the text", prefixed("#")),
    ("quoted mail", prefixed(">>> ")),
    ("indented in a list", prefixed("    ")),
    ("log prefixes", prefixed("2024-05-01T10:00:00Z node7 INFO: ")),
    ("code fence", f"```text\n{PAIRS}```\nThat was it.\n"),
    ("python string", f'output = """{PAIRS}"""\n'),
    ("one-line string literal", f"out = {PAIRS!r}\n"),
    ("one-line string literal of blanks", f"out = {PAIRS.expandtabs()!r}\n"),
    ("JSON log", json.dumps({"stdout": "\x1b[4m" + PAIRS.replace("\n", "\r\n")})),
    ("lines as a list in JSON", json.dumps({"topo": ["\x1b[4m" + one for one in LINES]})),
    ("lines as a list in Python", repr({"topo": LINES})),
    ("lines without tabs as a list", json.dumps([one.expandtabs() for one in LINES], indent=1)),
    ("diff", prefixed("+")),
    ("header without its leading tab", PAIRS[1:]),
    ("lines of a log in between", PAIRS.replace("\nGPU1", "\nwatchdog: all well on GPU1\nGPU1")),
    (
        "markdown table",
        (
            "| | GPU0 | GPU1 | GPU2 |\n|---|---|---|---|\n| GPU0 | X | NV4 | SYS |\n"
            "| **GPU1** | NV4 | X | SYS |\n| GPU2 | SYS | SYS | X |\n"
        ),
    ),
    (
        "markdown table with a name in the corner",
        (
            "| GPU0 | GPU0 | GPU1 | GPU2 |\n|---|---|---|---|\n| GPU0 | X | NV4 | SYS |\n"
            "| GPU1 | NV4 | X | SYS |\n| GPU2 | SYS | SYS | X |\n"
        ),
    ),
    (
        "broken by a mail program",
        (
            "GPU0 GPU1\nGPU2 CPU Affinity\nGPU0 X NV4\nSYS 0-7\n"
            "GPU1 NV4 X\nSYS 0-7\nGPU2 SYS SYS\nX 0-7\n"
        ),
    ),
    ("the same matrix of two nodes", PAIRS + "\n" + PAIRS),
    ("the rows of two nodes, mixed by a parallel shell", PAIRS + PAIRS.partition("\n")[2]),
    ("with topo -p2p of the same machine", PAIRS + "\n" + matrix("X OK", "OK X")),
    ("after prose that looks like a header", "GPU0 GPU1\nGPU0 GPU1 NIC0\n" + PAIRS),
    ("after a matrix that was cut off", PAIRS[: len(PAIRS) // 2] + "\n" + PAIRS),
    (
        "with prose about it below",
        PAIRS + "As you see, GPU2 SYS is far, GPU0 NV4 SYS is near, GPU9 PIX no.\n",
    ),
    ("with prose about another GPU below", PAIRS + "GPU9 PIX GPU10, elsewhere.\n"),
    ("with a remark behind a row", PAIRS.replace("SYS \nGPU1", "SYS <- X is self\nGPU1")),
    ("names that do not start at 0", PAIRS.replace("GPU2", "GPU7")),
]


@pytest.mark.parametrize("text", [text for _, text in DRESSES], ids=[name for name, _ in DRESSES])
def test_one_matrix_reads_the_same_in_every_dress(text):
    """Users paste from terminals, mails, logs and wikis; the facts must not depend on it."""
    topology = import_smi(text)
    assert topology.n_gpus == 3
    assert topology.links[0] == (NO_LINK, nvlink(4), NO_LINK)
    assert topology.links[1][2] == NO_LINK
    assert topology.pcie[0] == (PcieLevel.SELF, PcieLevel.UNKNOWN, PcieLevel.SYS)
    assert topology.nics == ()
    assert topology.fabrics == ()


LINK_EVIDENCE = [
    ("a legend that lists NV#", PLAIN + LEGEND_M, None, NO_LINK),
    ("the command topo -m", "$ nvidia-smi topo -m\n" + PLAIN, None, NO_LINK),
    ("the command topo --matrix", "$ nvidia-smi topo --matrix\n" + PLAIN, None, NO_LINK),
    ("a model without NVLink", PLAIN, "NVIDIA GeForce RTX 4090", NO_LINK),
    ("nothing", PLAIN, None, UNKNOWN_LINK),
    ("nothing, and a model with NVLink", PLAIN, "NVIDIA RTX A6000", UNKNOWN_LINK),
    ("the legend of topo -mp", PLAIN + LEGEND, None, UNKNOWN_LINK),
    ("the command topo -mp", "$ nvidia-smi topo -mp\n" + PLAIN, None, UNKNOWN_LINK),
]


@pytest.mark.parametrize(
    ("text", "model", "link"),
    [row[1:] for row in LINK_EVIDENCE],
    ids=[row[0] for row in LINK_EVIDENCE],
)
def test_a_pcie_label_means_no_link_only_where_links_would_show(text, model, link):
    """`topo -mp` hides NVLink: without proof of the contrary a PIX..SYS cell leaves it unknown."""
    topology = import_smi(text, gpu_model=model)
    assert topology.links[0][1] == link
    assert topology.pcie[0][1] is PcieLevel.PHB


def test_evidence_of_one_matrix_does_not_serve_another(check_message):
    """A legend stands below its own matrix; the next one in the log may come from `topo -mp`."""
    larger = "GPU0 GPU1 GPU2\nGPU0 X PHB SYS\nGPU1 PHB X SYS\nGPU2 SYS SYS X\n"
    with pytest.raises(ImportFormatError) as caught:
        import_smi(PLAIN + LEGEND_M + larger + LEGEND)
    check_message(caught.value)
    for text in (PLAIN + LEGEND + PLAIN + LEGEND_M, PLAIN + LEGEND_M + PLAIN + LEGEND):
        assert import_smi(text).links[0][1] == NO_LINK


TOPO_M = "GPU0 GPU1 NIC0 NUMA Affinity\nGPU0 X NV4 PIX 0\nGPU1 NV4 X SYS 0-1\n"
TOPO_MP = "GPU0 GPU1 NUMA Affinity\nGPU0 X PXB N/A\nGPU1 PXB X 1\n"


@pytest.mark.parametrize("text", [TOPO_M + TOPO_MP, TOPO_MP + TOPO_M, TOPO_M + TOPO_MP + TOPO_M])
def test_topo_m_and_topo_mp_of_one_machine_add_up(text):
    """The one hides the level behind NV#, the other hides the link: together both are known."""
    topology = import_smi(text)
    assert topology.links[0][1] == nvlink(4)
    assert topology.pcie[0][1] is PcieLevel.PXB
    assert [gpu.numa_node for gpu in topology.gpus] == [0, 1]
    assert [nic.name for nic in topology.nics] == ["NIC0"]


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ("NV4", "NV2", "link in row 0, column 1"),
        ("PIX", "SYS", "PCIe level in row 0, column 1"),
    ],
)
def test_matrices_of_two_machines_are_not_merged(one, other, what):
    """Where both know a fact and differ, the log is about two nodes, and it is unknown which."""
    with pytest.raises(ImportFormatError, match=f"different machines: {what} differs"):
        import_smi(matrix(f"X {one}", f"{one} X") + "\n" + matrix(f"X {other}", f"{other} X"))


def test_a_metax_matrix_holds_links_of_unknown_count():
    """`mx-smi topo -m` prints MX and other names of columns, else it is the same layout."""
    topology = import_smi(
        "        GPU0    GPU1    GPU2    Node Affinity  CPU Affinity\n"
        "GPU0    X       MX      NODE    0              0-31,64-95\n"
        "GPU1    MX      X       NODE    0              0-31,64-95\n"
        "GPU2    NODE    NODE    X       1              32-63\n"
    )
    assert topology.links[0][1] == AcceleratorLink(LinkKind.METAXLINK, None)
    assert topology.links[0][2] == NO_LINK
    assert [gpu.numa_node for gpu in topology.gpus] == [0, 0, 1]


def test_soc_is_the_old_name_of_sys():
    """Drivers before 375 printed SOC where later ones print SYS."""
    assert import_smi(PLAIN.replace("PHB", "SOC")).pcie[0][1] is PcieLevel.SYS


def test_both_labels_in_one_cell_give_both_facts():
    """Hand-made tables join NVLink and PCIe level, which nvidia-smi cannot print together."""
    topology = import_smi(PLAIN.replace("PHB", "NV4/PXB"))
    assert topology.links[0][1] == nvlink(4)
    assert topology.pcie[0][1] is PcieLevel.PXB


# --- Direct or switched ----------------------------------------------------------------------

CUBE_MESH = matrix(
    "X NV1 NV1 NV2 NV2 SYS SYS SYS",
    "NV1 X NV2 NV1 SYS NV2 SYS SYS",
    "NV1 NV2 X NV2 SYS SYS NV1 SYS",
    "NV2 NV1 NV2 X SYS SYS SYS NV1",
    "NV2 SYS SYS SYS X NV1 NV1 NV2",
    "SYS NV2 SYS SYS NV1 X NV2 NV1",
    "SYS SYS NV1 SYS NV1 NV2 X NV2",
    "SYS SYS SYS NV1 NV2 NV1 NV2 X",
)
SWITCHING = [
    ("eight GPUs with NV18 hang on switches", switched(8, 18), None, 1),
    ("eight A800 with NV8 hang on switches", switched(8, 8), None, 1),
    ("four GPUs with NV4 are wired directly: 12 links", switched(4, 4), None, 0),
    ("eight V100 with NV6 hang on switches", switched(8, 6), "Tesla V100-SXM3-32GB", 1),
    ("three GPUs with NV6 could be wired directly", switched(3, 6), None, 0),
    ("three V100 with NV6 could not, they have six links", switched(3, 6), "Tesla V100-SXM3", 1),
    ("a pair with NV18 may be a bridge", switched(2, 18), None, 0),
    ("a hybrid cube mesh is wired directly", CUBE_MESH, "Tesla V100-SXM2-16GB", 0),
    ("a model without NVLink is no reason to see switches", switched(4, 4), "NVIDIA L40S", 0),
]


@pytest.mark.parametrize(
    ("text", "model", "n_fabrics"),
    [row[1:] for row in SWITCHING],
    ids=[row[0] for row in SWITCHING],
)
def test_switched_is_what_a_gpu_has_not_links_enough_for(text, model, n_fabrics):
    """NVSwitch prints the same count for every pair; summed per pair it would be counted often."""
    topology = import_smi(text, gpu_model=model)
    assert len(topology.fabrics) == n_fabrics


def test_a_gpu_with_a_dead_link_has_fewer_ports():
    """Pairs of a fabric reach each other at the lesser count, so one GPU lowers its row only."""
    text = matrix("X NV12 NV11 NV12", "NV12 X NV11 NV12", "NV11 NV11 X NV11", "NV12 NV12 NV11 X")
    assert import_smi(text).fabrics[0].ports == ((0, 12), (1, 12), (2, 11), (3, 12))


def test_two_fabrics_in_one_node_stay_apart():
    """Two boards of four GPUs, each with its switches, share no NVLink."""
    four = ["NV18", "NV18", "NV18", "NV18"]
    rows = []
    for i in range(8):
        near = [("X" if i % 4 == j else four[j]) for j in range(4)]
        rows.append(" ".join(near + ["SYS"] * 4 if i < 4 else ["SYS"] * 4 + near))
    fabrics = import_smi(matrix(*rows)).fabrics
    assert [[gpu for gpu, _ in fabric.ports] for fabric in fabrics] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_neither_mesh_nor_switch_is_refused(check_message):
    """A row with more links than a GPU has, and a pair without any, contradict each other."""
    text = matrix("X NV18 NV18 PIX", "NV18 X NV18 NV18", "NV18 NV18 X NV18", "PIX NV18 NV18 X")
    with pytest.raises(ImportFormatError) as caught:
        import_smi(text)
    check_message(caught.value)


def test_unequal_counts_of_one_pair_give_the_lesser():
    """A link is as good as its worse end."""
    assert import_smi(matrix("X NV2", "NV1 X")).links[0][1] == nvlink(1)


# --- NICs, NUMA nodes, names -----------------------------------------------------------------

WITH_NICS = (
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV18\tPIX\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tPIX\t32-63\t1\t\t2\n"
    "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t\n"
)
NIC_LEGEND = "\nNIC Legend:\n\n  NIC0: mlx5_10\n  NIC1: mlx5_bond_0\n"


def test_nics_take_their_names_from_the_legend():
    """NIC0 is nvidia-smi's own count; pods and fabrics know the device's name."""
    nics = import_smi(WITH_NICS + NIC_LEGEND).nics
    assert [nic.name for nic in nics] == ["mlx5_10", "mlx5_bond_0"]
    assert [nic.levels for nic in nics] == [
        (PcieLevel.PIX, PcieLevel.SYS),
        (PcieLevel.SYS, PcieLevel.PIX),
    ]
    assert [nic.is_rdma for nic in nics] == [True, True]


@pytest.mark.parametrize(
    ("name", "is_rdma"),
    [("mlx4_0", True), ("rocep13s0f0", True), ("ibp12s0", True), ("NIC0", None), ("eth0", None)],
)
def test_a_nic_is_rdma_only_where_its_name_says_so(name, is_rdma):
    """NIC0 without a legend may be anything; unknown never satisfies a pod that needs RDMA."""
    assert import_smi(f"GPU0 {name}\nGPU0 X PIX\n").nics[0].is_rdma is is_rdma


def test_a_legend_that_names_two_nics_alike_is_not_followed():
    """Names distinguish NICs; where they do not, the columns' own names do."""
    nics = import_smi(WITH_NICS + NIC_LEGEND.replace("bond_0", "10")).nics
    assert [nic.name for nic in nics] == ["NIC0", "NIC1"]


CUT_NICS = [
    ("all NIC rows missing", WITH_NICS[: WITH_NICS.index("\nNIC0")]),
    ("one NIC row cut off", WITH_NICS[: WITH_NICS.index("\nNIC1") + 12]),
]


@pytest.mark.parametrize("text", [row[1] for row in CUT_NICS], ids=[row[0] for row in CUT_NICS])
def test_nic_rows_may_be_cut_off(text):
    """GPU rows hold the NIC columns, so nothing is lost."""
    assert import_smi(text).nics == import_smi(WITH_NICS).nics


def test_nic_columns_may_be_cut_off_a_gpu_row():
    """The NIC's own row fills in; else the level is unknown; the GPUs are whole."""
    cut = "GPU0 GPU1 NIC0 NIC1\nGPU0 X NV1 PIX\nGPU1 NV1 X\nNIC0 PIX SYS X\n"
    assert [nic.levels for nic in import_smi(cut).nics] == [
        (PcieLevel.PIX, PcieLevel.SYS),
        (PcieLevel.UNKNOWN, PcieLevel.UNKNOWN),
    ]


def test_the_last_cell_of_a_gpu_row_may_be_glued_to_the_next_column():
    """The driver cut it: the NIC's own row has the level, and nothing has the NUMA node."""
    glued = WITH_NICS.replace("SYS\t0-31,64-95", "SY0-31,64-95").replace("PIX\t32-63", "PI32-63")
    topology = import_smi(glued)
    assert topology.nics == import_smi(WITH_NICS).nics
    assert [gpu.numa_node for gpu in topology.gpus] == [None, None]


@pytest.mark.parametrize(
    "legend",
    [
        "  NIC0: mlx5_10 (ib0)\n  NIC1: mlx5_bond_0<br>\n",
        "| NIC0: mlx5_10 | NIC1: mlx5_bond_0 |\n",
        "NIC0: mlx5_10  NIC1: mlx5_bond_0\n",
    ],
)
def test_a_legend_may_be_annotated_or_on_one_line(legend):
    """People and wikis write it so."""
    names = [nic.name for nic in import_smi(WITH_NICS + "\nNIC Legend:\n\n" + legend).nics]
    assert names == ["mlx5_10", "mlx5_bond_0"]


def test_a_damaged_entry_of_the_legend_names_no_nic():
    """A terminal wrote over the line: what stands there is another column's heading."""
    damaged = NIC_LEGEND.replace("mlx5_10", "NIC2   CPU Affinity    NUMA Affinity")
    assert [nic.name for nic in import_smi(WITH_NICS + damaged).nics] == ["NIC0", "mlx5_bond_0"]
    cut = NIC_LEGEND.replace("mlx5_bond_0", "MA ID")
    assert [nic.name for nic in import_smi(WITH_NICS + cut).nics] == ["mlx5_10", "NIC1"]


def test_nic_levels_that_contradict_each_other_are_unknown():
    """A NIC is no reason to refuse a node's GPUs, and no reason to believe either row."""
    text = "GPU0 NIC0\nGPU0 X PIX\nNIC0 SYS X\n"
    assert import_smi(text).nics[0].levels == (PcieLevel.UNKNOWN,)


NUMA = [
    ("all columns there", WITH_NICS, [0, 1]),
    ("a range of nodes", WITH_NICS.replace("\t0\t\tN/A", "\t0-1\t\tN/A"), [None, 1]),
    ("N/A", WITH_NICS.replace("\t0\t\tN/A", "\tN/A\t\tN/A"), [None, 1]),
    ("empty CPU affinity, by tabs", WITH_NICS.replace("32-63", ""), [0, 1]),
    ("both empty, by tabs", WITH_NICS.replace("32-63\t1\t", "\t\t"), [0, None]),
    ("both empty at the end of the line", WITH_NICS.replace("\t32-63\t1\t\t2", ""), [0, None]),
    (
        "empty CPU affinity, by columns",
        (
            "      GPU0  GPU1  CPU Affinity  NUMA Affinity\n"
            "GPU0   X    NV1   0-3           0\n"
            "GPU1  NV1    X                  1\n"
        ),
        [0, 1],
    ),
    (
        "a column that starts nowhere",
        (
            "      GPU0  GPU1  CPU Affinity  NUMA Affinity\n"
            "GPU0   X    NV1   0-3           0\n"
            "GPU1  NV1    X            1\n"
        ),
        [0, None],
    ),
    (
        "tabs out of step with the header",
        (
            "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
            "GPU0\tX\tNV1\t0-3\t0\nGPU1\t\tNV1\t\tX\t\t\t1\n"
        ),
        [0, None],
    ),
    (
        "header out of step with the rows",
        "\tGPU0\t\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV1\t0-3\t0\nGPU1\tNV1\tX\t\t1\n",
        [0, None],
    ),
    (
        "a broken header with an empty column",
        (
            "GPU0 GPU1\nGPU2 CPU Affinity NUMA Affinity\n"
            "GPU0 X SYS SYS 0-3 0\nGPU1 SYS X SYS 1\nGPU2 SYS SYS X 0-3 1\n"
        ),
        [0, None, 1],
    ),
    ("a column called NUMA", "GPU0 CPU Affinity  NUMA\nGPU0 X 0-3 1\n", [1]),
    ("no NUMA column", "GPU0 CPU Affinity\nGPU0 X 1\n", [None]),
    ("GPU NUMA ID alone", "GPU0 GPU NUMA ID\nGPU0 X 1\n", [None]),
]


@pytest.mark.parametrize(("text", "numa"), [row[1:] for row in NUMA], ids=[row[0] for row in NUMA])
def test_the_numa_node_is_a_single_number_under_its_own_heading(text, numa):
    """An empty cell shifts the row; a wrong node would be worse than none."""
    assert [gpu.numa_node for gpu in import_smi(text).gpus] == numa


LISTED = (
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
    "  MIG 1g.5gb      Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)\n"
    "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-xxxxxxxx)\n"
)


def test_nvidia_smi_l_names_the_gpus():
    """Name and id stand in the same file more often than not; MIG instances are parts, not GPUs."""
    gpus = import_smi(LISTED + PLAIN, gpu_model="Tesla T4").gpus
    assert [gpu.model for gpu in gpus] == ["NVIDIA A100-SXM4-40GB"] * 2
    assert [gpu.uuid for gpu in gpus] == ["GPU-11111111-2222-3333-4444-555555555555", None]


def test_a_log_line_about_a_gpu_is_no_name():
    """`GPU 0: ...` also starts messages; without a UUID only a product's name counts."""
    text = "GPU 0: failed to initialise\nGPU 1: NVIDIA GeForce RTX 3090\n" + PLAIN
    assert [gpu.model for gpu in import_smi(text).gpus] == [None, "NVIDIA GeForce RTX 3090"]


BRIDGED = matrix("X NV4 PHB PHB", "NV4 X PHB PHB", "PHB PHB X NV4", "PHB PHB NV4 X")


def access(word: str, linked: str = "OK", crossed: str = "") -> str:
    """`topo -p2p` of BRIDGED; `crossed` for one pair that differs from the others."""
    other = crossed or word
    return matrix(
        f"X {linked} {other} {word}",
        f"{linked} X {word} {word}",
        f"{other} {word} X {linked}",
        f"{word} {word} {linked} X",
    )


@pytest.mark.parametrize(
    ("text", "p2p"),
    [
        pytest.param(BRIDGED, P2pAccess.UNKNOWN, id="nothing stated"),
        pytest.param(BRIDGED + access("OK"), P2pAccess.YES, id="all pairs"),
        pytest.param(access("CNS") + BRIDGED, P2pAccess.NO, id="bridged pairs alone"),
        pytest.param(BRIDGED + access("OK", crossed="TNS"), P2pAccess.UNKNOWN, id="pairs differ"),
        pytest.param(BRIDGED + access("NS"), P2pAccess.UNKNOWN, id="perhaps of NVLink"),
        pytest.param(
            BRIDGED + "$ nvidia-smi topo -p2p r\n" + access("NS"), P2pAccess.NO, id="of reading"
        ),
        pytest.param(
            BRIDGED + "$ nvidia-smi topo -p2p n\n" + access("GNS"),
            P2pAccess.UNKNOWN,
            id="of NVLink",
        ),
        pytest.param(BRIDGED + access("U"), P2pAccess.UNKNOWN, id="unknown to the driver"),
        pytest.param(BRIDGED + matrix("X OK", "OK X"), P2pAccess.UNKNOWN, id="of another machine"),
    ],
)
def test_what_a_text_states_of_access_is_known(text, p2p):
    """A driver may forbid what the model can do, and allow what it is not sold with."""
    assert import_smi(text).p2p is p2p


def test_the_caller_names_what_the_text_does_not():
    """Most matrices come without names, and a guess from the counts could be wrong."""
    assert {gpu.model for gpu in import_smi(PAIRS).gpus} == {None}
    assert {gpu.model for gpu in import_smi(PAIRS, gpu_model="NVIDIA A40").gpus} == {"NVIDIA A40"}


# --- What is refused -------------------------------------------------------------------------

REFUSED = [
    ("no matrix", "nothing here", "no nvidia-smi matrix"),
    ("a header alone", "GPU0 GPU1\n", "no nvidia-smi matrix"),
    ("prose about GPUs", "GPU0 GPU1 and GPU2 are fine\n", "no nvidia-smi matrix"),
    ("a GPU behind a NIC", "GPU0 NIC0 GPU1\nGPU0 X PIX SYS\n", "no nvidia-smi matrix"),
    ("access, not links", matrix("X OK", "OK X"), "topo -p2p"),
    ("a GPU row missing", PAIRS[: PAIRS.index("\nGPU2")], "row GPU2 is missing: the matrix has 3"),
    ("a GPU row cut off", PAIRS[: PAIRS.rindex("SYS") - 2], "row GPU2 is cut off after 1 of 3"),
    ("a GPU row with the name only", PAIRS[: PAIRS.index("\nGPU2") + 5], "row GPU2 is missing"),
    ("the header cut off", PAIRS.replace("\tGPU2\n", "\n", 1), "more cells than the header has"),
    ("a row without a column", PLAIN + "GPU2 PHB PHB\n", "row GPU2 has no column GPU2"),
    (
        "a column twice",
        "GPU0 GPU1 GPU1\nGPU0 X PIX PIX\nGPU1 PIX X X\n",
        "column GPU1 stands there",
    ),
    ("a row twice, different", PLAIN + "GPU1 PIX X\n", "row GPU1 stands there twice"),
    ("a log without end", PLAIN * 1001, "more than 1000 matrices"),
    ("a cell that is no label", PAIRS.replace("NV4", "NVx", 1), "column GPU1 is 'NVx'"),
    ("a count that no GPU has", PAIRS.replace("NV4", "NV99"), "column GPU1 is 'NV99'"),
    ("access among links", "GPU0 GPU1\nGPU0 X OK\nGPU1 PIX X\n", "column GPU1 is 'OK'"),
    (
        "a cell missing in the middle",
        "GPU0 GPU1 NIC0 NIC1\nGPU0 X NV1 PIX 0-3\n",
        "column NIC1 is '0-3'",
    ),
    ("no X on the diagonal", PAIRS.replace(" X ", "PIX"), "row GPU0 does not hold X"),
    ("X off the diagonal", "GPU0 GPU1\nGPU0 X X\nGPU1 X X\n", "holds X more than once"),
    (
        "halves at odds, levels",
        matrix("X PIX", "SYS X"),
        "pair GPU0-GPU1 contradict .* PIX against SYS",
    ),
    ("halves at odds, links", matrix("X NV4", "PIX X"), "nvlink x 4 against no link"),
    ("halves at odds, kinds", matrix("X NV4", "MX X"), r"nvlink x 4 against metaxlink x \?"),
    ("two different machines", PAIRS + switched(2, 1), "different machines"),
    (
        "more GPUs than a node has",
        "".join(f"GPU{i} " for i in range(513)) + "\nGPU0 X\n",
        "513 GPU columns, expected at most 512",
    ),
]


@pytest.mark.parametrize(
    ("text", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_refusal_names_the_row_and_the_reason(text, reason):
    """Half a matrix taken for a whole one would place pods on links that are not there."""
    with pytest.raises(ImportFormatError, match=reason):
        import_smi(text)


SAMPLES = [PAIRS, WITH_NICS + NIC_LEGEND + LEGEND_M, CUBE_MESH, LISTED + PLAIN, switched(4, 18)]


@given(text=st.sampled_from(SAMPLES), start=st.integers(0, 900), end=st.integers(0, 900))
def test_a_piece_of_a_recording_reads_or_is_refused(text, start, end):
    """Recordings get cut by terminals and web forms: the documented errors come out, no other."""
    try:
        topology = import_smi(text[start:end])
    except TopologyError:
        return
    assert topology.n_gpus <= 8


@given(
    text=st.sampled_from(SAMPLES),
    edits=st.lists(
        st.tuples(
            st.integers(0, 900),
            st.sampled_from(
                ["", " ", "\t", "\n", "X", "GPU1", "NV9", "SYS", "|", "\x1b[", "é", "0"]
            ),
        ),
        max_size=8,
    ),
)
def test_a_damaged_recording_reads_or_is_refused(text, edits):
    """Typing errors end in a documented error or in a topology that checks itself."""
    for place, new in edits:
        text = text[:place] + new + text[place + 1 :]
    try:
        import_smi(text)
    except TopologyError:
        return


@given(cut=st.integers(1, 2000))
def test_a_cut_matrix_never_has_fewer_gpus(cut):
    """Cutting the end off gives the same GPUs or a refusal, never a smaller machine."""
    try:
        topology = import_smi(CUBE_MESH[:cut])
    except TopologyError:
        return
    assert topology.n_gpus == 8
