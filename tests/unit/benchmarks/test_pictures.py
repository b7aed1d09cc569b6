"""The README's pictures show what the results and the core say."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.pictures import (
    BARS,
    DEFAULT_OUT,
    GOOD_SET,
    POOR_SET,
    RESULTS,
    draw_chart,
    draw_set,
    main,
    read_groups,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_the_chart_shows_every_mean_of_the_results():
    """A bar without its figure, or with an old one, would be a claim without a measurement."""
    chart = draw_chart(read_groups())
    table = json.loads(RESULTS.read_text(encoding="utf-8"))["tables"][0]
    shown = re.findall(r">([01]\.\d{3})<", chart)
    means = [f"{row[i]:.3f}" for i in (1, 3, 5) for row in table["rows"] if row[0] in BARS]
    assert sorted(shown) == sorted(means)


def test_results_without_a_policy_are_refused(tmp_path):
    """A renamed row must stop the drawing, not drop a bar."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    results["tables"][0]["rows"] = [
        row for row in results["tables"][0]["rows"] if row[0] != "NVIDIA best-effort"
    ]
    file = tmp_path / "efficiency.json"
    file.write_text(json.dumps(results), encoding="utf-8")
    with pytest.raises(BenchmarkError, match="has no 'NVIDIA best-effort', expected it"):
        read_groups(file)


@pytest.mark.parametrize("name", ["measured-results.svg", "planned-set.svg", "poor-set.svg"])
def test_the_committed_pictures_are_current(name, tmp_path):
    """What a reader sees must be what the code draws now: the texts are compared, not the paths."""
    main(tmp_path)

    def texts(folder: Path) -> list[str]:
        return re.findall(r">([^<>]+)</(?:text|title)>", (folder / name).read_text("utf-8"))

    assert texts(DEFAULT_OUT) == texts(tmp_path) != []


def test_the_readme_names_the_bandwidths_of_the_pictures():
    """The sentence above the pictures must agree with them."""
    readme = (DEFAULT_OUT.parents[1] / "README.md").read_text(encoding="utf-8")
    for gpus in (GOOD_SET, POOR_SET):
        (value,) = re.findall(r">set: (\d+) GB/s<", draw_set(gpus, "set"))[:1]
        assert f"{value} GB/s" in readme
