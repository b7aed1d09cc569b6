"""Figures, tables, goals and the picture of groups on a network."""

from __future__ import annotations

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks.groups.benchmark import (
    COTERIE,
    KUEUE,
    ONE_BY_ONE,
    SCENARIOS,
    WAYS,
    Data,
    first_jobs,
    load_data,
    run,
)
from benchmarks.groups.choice_speed import ChoiceLoad, measure_choice
from benchmarks.groups.figures import (
    mean_figures,
    predicted_gbytes_per_s,
    rate_run,
    spread_of_figures,
)
from benchmarks.groups.picture import cells_at, draw_fabric, main
from benchmarks.groups.simulation import Run, Started
from benchmarks.groups.trace import Job, TraceJob


@pytest.fixture
def data(paths):
    """Jobs of 1 to 16 GPUs in every trace of every scenario, on nine hosts."""
    names = {name for scenario in SCENARIOS for name in scenario.traces}
    jobs = [TraceJob(3600.0 * i, (1, 16, 4, 8)[i % 4], 40_000.0) for i in range(12)]
    return Data(tuple(paths for _ in SCENARIOS), dict.fromkeys(names, jobs))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param((8,), 469, id="one host: its NVSwitch"),
        pytest.param((4, 4), 335, id="two hosts: the switches reduce, so the network counts more"),
        pytest.param((4, 4, 4), 191, id="three hosts: a NIC for each GPU of the least share"),
        pytest.param((1, 8), 85, id="the least share decides"),
    ],
)
def test_the_bandwidth_of_a_group(gpus, expected):
    """By the model of the core; a host is a DGX H100."""
    assert round(predicted_gbytes_per_s(gpus)) == expected


def test_a_run_is_rated_by_its_groups_and_waits(hosts_of):
    """One group in a leaf, one over two spines; the single pod waited twice as long."""
    started = [
        Started(Job(0, 2, 8, 10), 3600, ((0, 1), (1, 1))),
        Started(Job(0, 2, 8, 10), 3600, ((4, 1), (5, 1))),
        Started(Job(0, 1, 8, 10), 7200, ((2, 1),)),
    ]
    figures = rate_run(Run(started, 1, 86400.0, 7200.0, 10.0, 4.0), hosts_of())
    assert (figures.one_leaf_percent, figures.one_spine_percent) == (50, 50)
    assert figures.hosts_per_group == 2
    assert figures.harmonic_gbytes_per_s == pytest.approx(469, abs=1)
    assert (figures.group_wait_mean_h, figures.single_wait_p95_h) == (1, 2)
    assert figures.all_wait_mean_h == pytest.approx(4 / 3)
    assert (figures.partial_gpu_h, figures.scattered_percent) == (2, 40)
    assert (figures.makespan_days, figures.stuck) == (1, 1)
    assert mean_figures([figures, figures]) == figures
    assert spread_of_figures([figures]).one_leaf_percent == 0
    assert spread_of_figures([figures, figures]).makespan_days == 0


def test_no_free_gpu_is_no_scattered_one(hosts_of):
    """A cluster that is always full has nothing to scatter."""
    started = [
        Started(Job(0, 2, 8, 10), 0, ((0, 1), (1, 1))),
        Started(Job(0, 1, 8, 10), 0, ((2, 1),)),
    ]
    assert rate_run(Run(started), hosts_of()).scattered_percent == 0


def test_tables_have_every_policy_and_goals_say_whether_they_are_met(data, rows_of):
    """Figures and their spread for each scenario and size of members."""
    played = []
    tables = run(data, n_seeds=1, advance=lambda: played.append(1))
    assert len(played) == len(SCENARIOS) * 2 * len(WAYS)
    assert len(tables) == 1 + len(SCENARIOS) * 2 * 2
    goals, first, spread = tables[:3]
    assert list(rows_of(first)) == list(rows_of(spread)) == list(WAYS)
    assert first.title == "One spine, overloaded, members of 8 GPUs"
    assert any("3 of them groups" in note for note in first.notes)
    partial = first.columns.index("partial GPU-h") - 1
    assert rows_of(first)[COTERIE][partial] == 0
    for what, _, measured, goal, _, is_met in goals.rows:
        assert isinstance(measured, float)
        assert isinstance(goal, float)
        is_upper = "at most" in str(what) or "none" in str(what)
        assert (is_met == "yes") == (measured <= goal if is_upper else measured >= goal)
    assert {KUEUE, ONE_BY_ONE} <= {str(row[0]).rpartition(" x ")[2] for row in goals.rows}


def test_a_smoke_run_plays_the_first_jobs(data):
    """Of each trace."""
    assert {len(jobs) for jobs in first_jobs(data, 3).jobs.values()} == {3}


def test_data_of_every_scenario_is_read(tmp_path):
    """The network once for each scenario, each trace once."""
    (tmp_path / "traces" / "lingjun").mkdir(parents=True)
    (tmp_path / "traces" / "muri_philly").mkdir()
    hosts = "ip,DSW,PSW,ASW\na,D,P8,S1\nb,D,P9,S1\n"
    (tmp_path / "traces" / "lingjun" / "topo.csv").write_text(hosts)
    names = {name for scenario in SCENARIOS for name in scenario.traces}
    for name in names:
        path = tmp_path / "traces" / "muri_philly" / f"{name}.csv"
        path.write_text("num_gpu,submit_time,duration\n2,1000,5000\n")
    read = load_data(tmp_path)
    assert [len(hosts) for hosts in read.hosts] == [1, 1, 2]
    assert read.jobs == dict.fromkeys(names, (TraceJob(1.0, 2, 5.0),))


def test_cells_show_what_runs_at_one_moment(hosts_of):
    """Groups from the left, then single pods; who ended is gone."""
    hosts = hosts_of()
    started = [
        Started(Job(0, 1, 2, 10), 0, ((0, 1),)),
        Started(Job(0, 2, 4, 10), 0, ((0, 1), (1, 1))),
        Started(Job(0, 2, 8, 10), 0, ((4, 1), (5, 1))),
        Started(Job(0, 1, 8, 5), 0, ((8, 1),)),
    ]
    cells = cells_at(started, hosts, 5.0)
    assert (cells.n_groups, cells.n_together) == (2, 1)
    assert [len(leaf) for leaf in cells.leaves] == [3, 2, 4]
    together, single, free = (cells.leaves[0][0][i] for i in (0, 4, 6))
    assert cells.leaves[0][0] == (together,) * 4 + (single,) * 2 + (free,) * 2
    apart = cells.leaves[1][1][0]
    assert len({together, single, free, apart}) == 4
    assert cells.leaves[2][3] == (free,) * 8


def test_the_picture_is_the_same_each_time(data):
    """A picture in the documentation changes only with its data."""
    picture = draw_fabric(data)
    assert picture == draw_fabric(data)
    assert f"{COTERIE}: " in picture
    assert "groups are within one leaf" in picture


def test_the_picture_is_written(data, monkeypatch, tmp_path):
    """To the folder of the documentation's pictures, or another one."""
    monkeypatch.setattr("benchmarks.groups.picture.load_data", lambda _: data)
    program = Typer()
    program.command()(main)
    result = CliRunner().invoke(program, ["--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "groups-on-a-network.svg").read_text().startswith("<?xml")


def test_choices_are_timed_on_states_of_a_cluster(rows_of):
    """One row for each group, and one for the tree and for what is kept."""
    rows = rows_of(measure_choice(ChoiceLoad(n_nodes=64, n_states=1), 0))
    assert rows["64 x 4 GPUs"][0] == 4
    assert len(rows) == 11
    assert all(0 < row[1] <= row[3] for row in rows.values())
