"""The plain square matrix: what people write by hand or export from a spreadsheet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import ImportFormatError, TopologyError
from topology.importers.tables.matrix import import_matrix, looks_like_matrix
from topology.model import NO_LINK, UNKNOWN_LINK, AcceleratorLink, LinkKind, PcieLevel

PAIR_AND_ONE = "X,NV4,SYS\nNV4,X,SYS\nSYS,SYS,X\n"

SHAPES = [
    ("commas", PAIR_AND_ONE),
    ("semicolons", PAIR_AND_ONE.replace(",", ";")),
    ("tabs", PAIR_AND_ONE.replace(",", "\t")),
    ("blanks", PAIR_AND_ONE.replace(",", "  ")),
    ("quoted cells with blanks", PAIR_AND_ONE.replace("NV4", ' "NV4" ')),
    ("0 on the diagonal", PAIR_AND_ONE.replace("X", "0")),
    ("comments and empty lines", "# my box\n\n" + PAIR_AND_ONE.replace("\n", " # row\n\n")),
    ("a header", "a,b,c\n" + PAIR_AND_ONE),
    ("a header and names", ",a,b,c\na,X,NV4,SYS\nb,NV4,X,SYS\nc,SYS,SYS,X\n"),
    ("names without a header", "a,X,NV4,SYS\nb,NV4,X,SYS\nc,SYS,SYS,X\n"),
]


@pytest.mark.parametrize("text", [row[1] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_one_matrix_reads_the_same_in_every_shape(text):
    """Spreadsheets differ in separators and headings, not in what they say."""
    topology = import_matrix(text)
    assert topology.links[0] == (NO_LINK, AcceleratorLink(LinkKind.NVLINK, 4), NO_LINK)
    assert topology.pcie[0] == (PcieLevel.SELF, PcieLevel.UNKNOWN, PcieLevel.SYS)
    assert looks_like_matrix(text)


CELLS = [
    ("both facts", "NV4/PXB", AcceleratorLink(LinkKind.NVLINK, 4), PcieLevel.PXB),
    ("no link, said aloud", "NV0/PXB", NO_LINK, PcieLevel.PXB),
    ("no link, no level", "NV0", NO_LINK, PcieLevel.UNKNOWN),
    ("an uncounted link", "MX", AcceleratorLink(LinkKind.METAXLINK, None), PcieLevel.UNKNOWN),
    ("a level alone says nothing about links", "PIX", UNKNOWN_LINK, PcieLevel.PIX),
    ("nothing known", "?", UNKNOWN_LINK, PcieLevel.UNKNOWN),
]


@pytest.mark.parametrize(
    ("label", "link", "level"), [row[1:] for row in CELLS], ids=[row[0] for row in CELLS]
)
def test_a_cell_says_no_more_than_it_prints(label, link, level):
    """Unknown is not zero, in either field."""
    topology = import_matrix(f"X {label}\n{label} X\n")
    assert (topology.links[0][1], topology.pcie[0][1]) == (link, level)


def test_an_unknown_cell_stays_unknown_beside_links():
    """A matrix that shows links makes PIX mean "no link", but a question mark stays one."""
    topology = import_matrix("X NV2 ?\nNV2 X ?\n? ? X\n")
    assert topology.links[0][2] == UNKNOWN_LINK


def test_a_question_mark_in_one_half_is_answered_by_the_other():
    """Half a matrix is often left open; what the other half says holds."""
    topology = import_matrix("X NV2/PIX\n? X\n")
    assert topology.links[0][1] == AcceleratorLink(LinkKind.NVLINK, 2)
    assert topology.pcie[0][1] is PcieLevel.PIX
    assert import_matrix("X ?\nNV2/PIX X\n") == topology


def test_the_model_holds_for_all_gpus():
    """A matrix has no place for names; a model without links also settles that there are none."""
    topology = import_matrix("X PIX\nPIX X\n", gpu_model="NVIDIA L40S")
    assert [gpu.model for gpu in topology.gpus] == ["NVIDIA L40S"] * 2
    assert topology.links[0][1] == NO_LINK


def test_a_matrix_with_more_links_than_a_gpu_has_is_switched():
    """The rule for NVSwitch is that of `topo -m`."""
    rows = "\n".join(" ".join("X" if i == j else "NV12" for j in range(4)) for i in range(4))
    assert import_matrix(rows).fabrics[0].ports == ((0, 12), (1, 12), (2, 12), (3, 12))


REFUSED = [
    ("nothing", "# only a comment\n", "the matrix has 0 rows, expected 1..512"),
    ("too many rows", "X\n" * 513, "513 rows, expected 1..512"),
    ("a short row", "X NV1\nNV1\n", "row GPU1 has 1 cells, expected 2"),
    ("a long row", "X NV1\nNV1 X X X\n", "row GPU1 has 4 cells, expected 2"),
    ("too few rows", "X NV1\n", "row GPU0 has 2 cells, expected 1"),
    ("a header too long", "a b c d\nX NV1\nNV1 X\n", "the header has 4 names, expected 2"),
    (
        "a cell that is no label",
        "X NV1\nNVLINK X\n",
        "row GPU1, column GPU0 is 'NVLINK', expected X",
    ),
    ("a link as a level", "X NV1/NV2\nNV1/NV2 X\n", "column GPU1 is 'NV1/NV2'"),
    ("a count that no GPU has", "X NV1\nNV37 X\n", "column GPU0 is 'NV37'"),
    ("a name that is not the header's", ", a, b\na, X, NV1\nc, NV1, X\n", "named 'c', expected b"),
    ("0 off the diagonal", "0 0\n0 0\n", "holds X more than once"),
    ("a diagonal that is no X", "PIX PIX\nPIX X\n", "row GPU0 does not hold X"),
]


@pytest.mark.parametrize(
    ("text", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_refusal_names_the_row_and_what_was_expected(text, reason):
    """Whoever typed the matrix must find the cell."""
    with pytest.raises(ImportFormatError, match=reason):
        import_matrix(text)


@pytest.mark.parametrize("text", ["", "hello world", "GPU 0: some text", "a,b\nc,d\nX,X\n"])
def test_other_text_does_not_look_like_a_matrix(text):
    """The detection must not claim texts of other kinds."""
    assert not looks_like_matrix(text)


@given(
    st.lists(
        st.lists(st.sampled_from(["X", "0", "NV1", "NV18", "PIX", "SYS", "?", "a"]), max_size=5),
        max_size=5,
    ),
    st.sampled_from([",", ";", " "]),
)
def test_any_grid_of_labels_reads_or_is_refused(rows, separator):
    """Whatever a spreadsheet exports ends in a checked topology or in the documented error."""
    try:
        topology = import_matrix("\n".join(separator.join(row) for row in rows))
    except TopologyError:
        return
    assert 1 <= topology.n_gpus <= 5
