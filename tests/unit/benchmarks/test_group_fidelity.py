"""Group fidelity: the comparison itself, fits that leave sets out, and files that are no data."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.errors import BadData, MissingData
from benchmarks.quality import group_fidelity
from benchmarks.quality.group_fidelity import compare_groups, held_out
from benchmarks.quality.group_points import GroupShape, load_shapes, public_points, shape_shares
from topology.groups import NIC_SHARE, group_value

SIZES = [(1, 1), (2, 1), (4, 4), (3, 3, 3), (4, 3, 3), (4, 4, 4), (5, 3, 2), (2, 2, 2, 2)]
HEADER = '"shape(gpus per node)",total,nodes,min_per_node,busbw_2GiB_GBps,busbw_16MiB_GBps'


def shapes_made_with(share=NIC_SHARE):
    """Shapes that measure exactly what the model says at a share of the NICs' rate."""
    made = []
    for sizes in SIZES:
        shares = shape_shares(GroupShape(sizes, 1.0))
        value = group_value(shares, nic_share=share).gbytes_per_s
        assert value is not None
        made.append(GroupShape(sizes, value))
    return made


def write(folder, *rows):
    """The file of measured shapes, as `load_shapes` finds it."""
    path = folder / "measured" / "h100_multinode_shapes.csv"
    path.parent.mkdir()
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_a_perfect_model_has_no_error():
    """The values themselves as measurement."""
    found = compare_groups(shapes_made_with())
    assert found.spearman == pytest.approx(1.0)
    assert found.median == pytest.approx(0.0)
    assert (found.n_overrated, found.n_underrated) == (0, 0)


def test_errors_have_a_sign():
    """Too high and too low are counted apart."""
    shapes = [GroupShape((1, 1), 100.0), GroupShape((1, 1, 1), 30.0)]
    found = compare_groups(shapes)
    assert (found.n_overrated, found.n_underrated) == (1, 1)
    assert found.errors == pytest.approx(np.array([47.8 / 100 - 1, 47.8 / 30 - 1]))


@pytest.mark.parametrize(
    "fold", ["total", "number of nodes", "number of nodes and least share", "least share"]
)
def test_a_fit_finds_the_share_that_made_the_data(fold):
    """From the other sets alone: nothing of a set enters its own figure."""
    assert held_out(shapes_made_with(0.916), fold).median == pytest.approx(0.0, abs=1e-9)


def test_run_reports_agreement_choice_and_points():
    """One table each; the published points are those of the module."""
    agreement, chooser, published = group_fidelity.run(shapes_made_with())
    assert [row[0] for row in agreement.rows][:5] == [
        *("all", "2 nodes", "3 nodes", "4 nodes"),
        "equal shares",
    ]
    assert chooser.rows[0][1] == pytest.approx(0.0)
    assert [row[0] for row in published.rows] == [point.label for point in public_points()]


def test_shapes_of_one_node_are_left_out(tmp_path):
    """They are the node's own fidelity."""
    folder = write(tmp_path, HEADER, "2,2,1,2,343.37,204.92", "1+1,2,2,1,46.77,38.47")
    assert load_shapes(folder) == (GroupShape((1, 1), 46.77),)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="empty"),
        pytest.param(["shape,total", "1+1,2"], id="no figures"),
        pytest.param([HEADER, "1+1,2"], id="a short row"),
        pytest.param([HEADER, "1+1,2,2,1,fast,1"], id="no number"),
        pytest.param([HEADER, "1+9,2,2,1,40,1"], id="nine GPUs on a node"),
        pytest.param([HEADER, "1+1,2,2,1,0,1"], id="nothing measured"),
    ],
)
def test_what_is_no_data_is_refused(tmp_path, rows, check_message):
    """The message names file and row."""
    with pytest.raises(BadData) as caught:
        load_shapes(write(tmp_path, *rows))
    check_message(caught.value)
    with pytest.raises(MissingData, match="--shared"):
        load_shapes(tmp_path / "nowhere")
