"""What every extender exports: which series exist from the start, and what they count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.engine import Engine
from extender.observe import ExtenderMetrics
from extender.observe.metrics import MAX_MACHINES
from extender.protocol import Answer, Outcome, Verb
from tests.unit.extender.engines import RULES, bind, engine, names
from tests.unit.extender.feeds import MIG, live, node, topology_text, wide
from tests.unit.extender.pods import GPU, args, pod

V100, L4 = "dgx-1-v100", "8x-l4"
PLACED = Answer(
    Verb.BIND,
    Outcome.OK,
    b"",
    0,
    placed_gbytes_per_s=100.0,
    placed_efficiency=0.8,
    machine=V100,
    size_gpus=4,
)


class Page:
    """An extender and its page."""

    def __init__(self, over: Engine) -> None:
        self.engine = over
        self.metrics = ExtenderMetrics(over)

    def samples(self, name: str, now_s: float = 0.0) -> dict[tuple[str, ...], float]:
        """The samples of that name, by the values of their labels, sorted by label."""
        text = self.metrics.render(is_ready=True, now_s=now_s).decode()
        return {
            tuple(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"coterie_extender_{name}"
        }

    def at(self, name: str, *labels: str, now_s: float = 0.0) -> float:
        """One of them."""
        return self.samples(name, now_s)[labels]

    def filter(self, uid: str, n_gpus: int, now_s: float) -> Answer:
        """Filter a pod over all nodes."""
        content = args(pod(n_gpus, uid=uid), list(self.engine.cluster.snapshot.nodes))
        answer = self.engine.answer(Verb.FILTER, content, now_s)
        self.metrics.observe(answer, 0.0)
        return answer


@pytest.fixture
def page() -> Page:
    """Two V100 machines and one of L4, all free."""
    return Page(engine())


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        pytest.param("answers_total", ("failed", "stale", "filter"), id="answers"),
        pytest.param("devices", ("bound_unhealthy",), id="devices"),
        pytest.param("unschedulable_pods", ("affinity_taken",), id="pods"),
        pytest.param("longest_pending_seconds", ("affinity_taken",), id="waits now"),
        pytest.param("pending_duration_seconds_count", ("affinity_taken",), id="waits"),
    ],
)
def test_series_of_closed_sets_begin_at_zero(page, name, labels):
    """`increase()` does not see a series that appears at 1, and an alert needs one at 0."""
    assert page.at(name, *labels) == 0.0


def test_free_machines_hold_their_best_sets(page):
    """What can still be placed at full speed, for the sizes of the demand."""
    assert page.samples("placeable_sets") == {
        (V100, "1"): 16,
        (V100, "2"): 8,
        (V100, "3"): 4,
        (V100, "4"): 4,
        (V100, "8"): 2,
        (L4, "1"): 8,
        (L4, "2"): 4,
        (L4, "3"): 2,
        (L4, "4"): 2,
        (L4, "8"): 1,
    }
    assert set(page.samples("stranded_devices").values()) == {0.0}


def test_free_gpus_without_a_good_set_are_stranded(page):
    """Seven free GPUs are none for a pod of eight; the other machine is not counted."""
    name = names(page.engine)[0]
    assert bind(page.engine, "u1", name, 1).outcome is Outcome.OK
    assert page.at("placeable_sets", V100, "8") == 1
    assert page.at("stranded_devices", V100, "8") == 7
    assert page.at("placeable_sets", V100, "1") == 15
    assert page.at("stranded_devices", V100, "1") == 0


def test_counts_follow_the_cluster(page):
    """They are kept while nothing changes, and no longer."""
    first = names(page.engine)[0]
    before = page.samples("placeable_sets")
    assert page.samples("placeable_sets") == before
    bind(page.engine, "u1", first, 8)
    assert page.at("placeable_sets", V100, "8") == 1


def test_machines_of_more_than_16_devices_are_left_out():
    """There is no table of their sets; a guess would be read as a count."""
    counts = {GPU: 18}
    text = topology_text("large", machine=wide(18))
    large = node("large", topology=text, allocatable=counts, capacity=counts)
    page = Page(Engine(live(large), RULES))
    assert page.at("devices", "free") == 18
    assert page.samples("placeable_sets") == page.samples("stranded_devices") == {}


def test_gpus_are_counted_once_beside_another_resource():
    """A node that serves partitions too is shown by both; its GPUs are counted as GPUs."""
    rules, counts = replace(RULES, resources=(GPU, MIG)), {GPU: 4, MIG: 3}
    mixed = node("mixed", allocatable=counts, capacity=counts)
    page = Page(Engine(live(mixed, node("plain"), resources=rules.resources), rules))
    assert page.at("devices", "free") == 11
    singles = [n for (_, size), n in page.samples("placeable_sets").items() if size == "1"]
    assert singles == [8]


def test_sets_that_were_bound_are_valued_by_the_empty_machine(page):
    """0.8 of the best: between the buckets 0.7 and 0.9."""
    page.metrics.observe(PLACED, 0.0)
    buckets = page.samples("placed_efficiency_ratio_bucket")
    assert buckets["0.7", V100, "4"] == 0
    assert buckets["0.9", V100, "4"] == 1
    assert page.at("placed_efficiency_ratio_sum", V100, "4") == pytest.approx(0.8)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(replace(PLACED, placed_efficiency=None), id="an unknown machine"),
        pytest.param(replace(PLACED, placed_gbytes_per_s=0.0), id="one GPU"),
    ],
)
def test_what_has_no_efficiency_is_not_counted(page, answer):
    """A 0 or 1 for it would move the average."""
    page.metrics.observe(answer, 0.0)
    assert page.samples("placed_efficiency_ratio_sum") == {}


def test_binds_say_what_share_of_the_best_they_placed(page):
    """On the free machine the best, and less where its best sets are taken."""
    name = names(page.engine)[0]
    first = bind(page.engine, "u1", name, 4)
    assert first.placed_efficiency == pytest.approx(1.0)
    bind(page.engine, "u2", name, 1)
    third = bind(page.engine, "u3", name, 3)
    assert third.placed_efficiency is not None
    assert 0.0 < third.placed_efficiency <= 1.0


def test_how_long_a_pod_waited_is_counted_when_a_node_is_named(page):
    """By the reason that it waited for last, from its first rejection on."""
    first, *_ = every = names(page.engine)
    for one in every:
        bind(page.engine, f"on-{one}", one, 8)
    page.filter("u1", 8, 100.0)
    page.filter("u1", 8, 130.0)
    assert page.at("longest_pending_seconds", "not_enough_free", now_s=160.0) == 60.0
    page.engine.end(f"on-{first}")
    assert page.filter("u1", 8, 190.0).outcome is Outcome.OK
    assert page.at("pending_duration_seconds_sum", "not_enough_free") == 90.0
    assert page.at("longest_pending_seconds", "not_enough_free", now_s=200.0) == 0.0


def test_a_pod_that_never_waited_is_not_counted(page):
    """Most pods: they would hide those that do."""
    page.filter("u1", 8, 100.0)
    assert sum(page.samples("pending_duration_seconds_count").values()) == 0


def test_machines_have_a_bounded_number_of_names(page):
    """Names come from what nodes publish; the rest share one."""
    for i in range(MAX_MACHINES + 3):
        page.metrics.observe(replace(PLACED, machine=f"machine-{i}"), 0.0)
    shown = {machine for machine, _ in page.samples("placed_efficiency_ratio_sum")}
    assert len(shown) == MAX_MACHINES + 1
    assert "other" in shown
    assert page.at("placeable_sets", "other", "1") == 24
