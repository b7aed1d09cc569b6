"""The report: one page that stands alone and says what the runs say."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import pytest

from benchmarks.demo.examples import Example, pick_examples
from benchmarks.demo.figures import compute_figures, span
from benchmarks.demo.fleet import lay_out_fleet
from benchmarks.demo.gains import gain_by_machine, match_pods, say_gain
from benchmarks.demo.groups.comparison import compare_jobs
from benchmarks.demo.groups.pool import lay_out_pool
from benchmarks.demo.pods import draw_pods
from benchmarks.demo.policies import MostAllocatedPolicy
from benchmarks.demo.report import Demo, count_drawings, gbytes, make_tiles, percent, render_report
from benchmarks.demo.timeline import play
from benchmarks.masks import mask_of, members
from benchmarks.report import Environment
from benchmarks.rivals import NVIDIA_BEST_EFFORT, PLAIN_KUBELET, Rival


def lowest_ids(free, size, _rng, **_):
    """The first free ids in order."""
    return mask_of(members(free)[:size]) if size <= free.bit_count() else None


LOWEST_IDS = Rival("lowest ids", lambda _topology: lowest_ids)


FLEET = "2x 8x-a6000-bridged, 1x gb200-tray"


@pytest.fixture(scope="module")
def demo():
    """A small demo of three policies, with a gain and a loss to show."""
    nodes = lay_out_fleet(FLEET)
    pods = draw_pods(16, seed=2)
    runs = tuple(
        play(MostAllocatedPolicy(name, "a <note>", rival, nodes, seed=2), pods, nodes)
        for name, rival in (
            ("plain & random", PLAIN_KUBELET),
            ("lowest", LOWEST_IDS),
            ("last", NVIDIA_BEST_EFFORT),
        )
    )
    figures = tuple(compute_figures(run, nodes) for run in runs)
    matched = tuple(match_pods(runs, nodes, seed=2))
    gains = gain_by_machine(matched, nodes)
    pool = lay_out_pool()
    return Demo(
        seed=2,
        cluster=FLEET,
        nodes=nodes,
        pods=pods,
        runs=runs,
        figures=figures,
        spans=tuple(span([one, one]) for one in figures),
        matched=matched,
        gains=gains,
        examples=(Example(matched[0]), Example(matched[1], best_rival=0)),
        jobs=compare_jobs(
            MostAllocatedPolicy("together", "", LOWEST_IDS, pool, seed=2), pool, seed=2
        ),
        n_requests=7,
        seconds=1.5,
        environment=Environment("2026-01-02", "abc", "a CPU", 2, "3.11", "2.0"),
        version="1.2.3",
    )


@pytest.fixture(scope="module")
def page(demo):
    """The demo's page."""
    return render_report(demo)


class _Tags(HTMLParser):
    """Every tag with its attributes; unclosed elements."""

    VOID = frozenset({"meta", "br", "path", "use"})

    def __init__(self):
        super().__init__()
        self.seen = []
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def tags(page):
    """Parse a page."""
    parser = _Tags()
    parser.feed(page)
    assert parser.open == []
    return parser.seen


def test_the_page_refers_to_nothing_outside(page):
    """No script, no style sheet, no font, no picture from anywhere else."""
    for tag, attributes in tags(page):
        assert tag not in {"script", "link", "img", "iframe", "object"}
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")
    assert "@import" not in page
    assert "url(http" not in page


def test_the_page_is_for_light_dark_and_phones(page):
    """What browsers need for it."""
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_every_policy_pod_and_figure_is_there(demo, page):
    """The table says what the figures say; names are escaped."""
    assert "plain &amp; random" in page
    assert "a &lt;note&gt;" in page
    for one in demo.figures:
        assert percent(one.harmonic, 1) in page
    for example in demo.examples:
        assert f"{example.matched.pod.name} on {example.matched.machine}" in page
    assert "seed 2" in page
    assert "1.2.3, commit abc" in page


def test_each_drawing_is_counted_once(demo):
    """The progress bar ends where it says."""
    steps = []
    drawn = render_report(demo, advance=lambda: steps.append(1))
    assert len(steps) == count_drawings(demo) == drawn.count("<svg") == 3 * 2 + 2 * 2 + 2


def test_the_map_has_a_cell_for_every_gpu(page):
    """Every GPU of every node under every policy."""
    cells = [
        attributes
        for tag, attributes in tags(page)
        if attributes.get("title", "").startswith("GPU ")
    ]
    assert len(cells) == 3 * (8 + 8 + 4)
    assert {one["class"] for one in cells} <= {"a", "b", "c", "d", "one", "none", "free"}


def test_tiles_compare_with_the_second_policy_and_name_the_first(demo, page):
    """NVIDIA's best-effort is the rival; a kubelet at random stands in the text only."""
    tiles = make_tiles(demo)
    assert len(tiles) == 5
    theirs = [one.shares[1] for one in demo.matched]
    ours = [one.shares[2] for one in demo.matched]
    assert tiles[0].ours == percent(sum(ours) / len(ours), 1)
    assert tiles[0].theirs == percent(sum(theirs) / len(theirs), 1)
    assert (tiles[1].ours, tiles[1].theirs) == (percent(min(ours)), percent(min(theirs)))
    assert "last" not in tiles[0].text
    for tile in (*tiles[:2], *tiles[3:]):
        assert "Coterie vs lowest (plain & random " in tile.text
    assert "faster with Coterie vs with lowest" in tiles[2].text
    assert tiles[4].text.startswith("pods of a mix of 16 that waited: ")
    for tile in tiles:
        assert f"{tile.ours} <small>vs {tile.theirs}</small>" in page


def test_without_pods_to_compare_there_are_no_shares(demo):
    """No tile has a figure of nothing."""
    assert len(make_tiles(dataclasses.replace(demo, matched=()))) == 2


def test_a_machine_without_a_gain_says_why(demo, page):
    """Every machine type has a row, a switched fabric says 0."""
    shown = {one.machine: say_gain(one) for one in demo.gains}
    assert shown["gb200-tray"] == "0: every set is equally fast"
    for machine, said in shown.items():
        assert f"{machine}<small>gain {said}</small>" in page


def test_a_rivals_better_pod_is_marked(demo, page):
    """And where there is none, the page says so."""
    assert f"{demo.matched[1].machine}: plain &amp; random is faster" in page
    assert "No pod on the same machine type is faster" not in page
    without = render_report(dataclasses.replace(demo, examples=demo.examples[:1]))
    assert "No pod on the same machine type is faster with a rival." in without


def test_examples_name_every_policy_on_the_same_machine(demo):
    """What the page shows comes from pods that were compared alike."""
    for example in pick_examples(demo.matched):
        assert {demo.nodes[one.place.node].machine for one in example.matched.placed} == {
            example.matched.machine
        }


def test_waiting_stranded_and_free_are_explained_beside_the_table(page):
    """Before the next picture, not at the end of the page."""
    table, explained = page.index("How each policy did"), page.index("Pods by how close")
    for word in ("Waited", "Stranded", "Free"):
        assert table < page.index(f"<b>{word}</b>") < explained


def test_jobs_of_several_pods_have_a_section(page):
    """Before the figures of single pods: each job under both policies, with its nodes."""
    start, end = page.index("<h2>Jobs of several pods"), page.index("<h2>How each policy did")
    section = page[start:end]
    for name in ("tune", "train-a", "train-b"):
        assert f"{name}, one by one" in section
        assert f"{name}, together" in section
    assert "leaf-a: h100-a-0" in section
    assert section.count("<svg") == 2


def test_further_mixes_are_shown_where_there_are_some(demo, page):
    """One mix has no spread to show."""
    alone = dataclasses.replace(demo, spans=tuple(span([one]) for one in demo.figures))
    assert "The same with 2 mixes" in page
    assert "The same with" not in render_report(alone)


@pytest.mark.parametrize(
    ("share", "digits", "shown"),
    [
        pytest.param(1.0, 1, "100.0 %", id="whole"),
        pytest.param(0.9996, 1, "99.9 %", id="not quite whole"),
        pytest.param(0.996, 0, "99 %", id="not quite whole, no decimals"),
        pytest.param(0.054, 0, "5 %", id="little"),
    ],
)
def test_only_what_is_whole_is_shown_as_100(share, digits, shown):
    """Rounding never makes a figure perfect."""
    assert percent(share, digits) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [pytest.param(238.8, "239", id="three figures"), pytest.param(12.04, "12.0", id="two")],
)
def test_bandwidth_is_shown_with_three_figures(value, shown):
    """GB/s for people."""
    assert gbytes(value) == shown
