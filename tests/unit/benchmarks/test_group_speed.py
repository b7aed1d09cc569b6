"""What groups cost in the extender is measured: a waiting member's filter, and plans."""

from __future__ import annotations

from benchmarks.speed.groups import GROUPS, GroupLoad, measure_group_speed
from benchmarks.speed.whole_domains import measure_whole_domains


def test_filter_and_each_kind_of_group_are_measured():
    """Times are above 0; the groups that fit are placed."""
    table = measure_group_speed(GroupLoad(80, 2, (0.3,)))
    rows = {str(row[0]): row[1:] for row in table.rows}
    assert len(rows) == 2 + len(GROUPS)
    for n, p50, p99, most, *_ in rows.values():
        assert float(str(n)) > 0
        assert 0.0 < float(str(p50)) <= float(str(p99)) <= float(str(most))
    assert rows["filter of a waiting member, all names"][0] == 2 * sum(map(len, GROUPS))
    (placed,) = (note for note in table.notes if note.startswith("placed: "))
    assert "2 of plan of 4 x 8 GPUs" in placed
    assert "0 of plan of 512 x 8 GPUs" in placed


def test_single_pods_are_measured_with_the_setting_on_and_off():
    """Each verb as often, for the same pods."""
    table = measure_whole_domains(GroupLoad(80, 1, ()))
    assert [row[0] for row in table.rows] == [
        f"{verb}, keep_domains_whole {state}"
        for verb in ("filter", "prioritize")
        for state in ("off", "on")
    ]
    for _, n, p50, p99, most in table.rows:
        assert n == 20
        assert 0.0 < float(str(p50)) <= float(str(p99)) <= float(str(most))
