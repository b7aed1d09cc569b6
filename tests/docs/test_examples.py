"""The manifests of docs/examples: the annotations stand where the user guide says, and are read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from extender import command_line
from kube.objects import TEMPLATES
from tests.docs.markdown import ROOT
from tests.programs import called
from topology.annotations import parse_policy
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = ROOT / "docs" / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))
GUIDE = (ROOT / "docs" / "user-guide.md").read_text(encoding="utf-8")
ROW = re.compile(r"\(examples/(?P<file>[a-z-]+\.yaml)\) \| `(?P<path>[^`]+)`")
PATHS = {row["file"]: row["path"] for row in ROW.finditer(GUIDE)}
"""Of each example, the path of its annotations by the user guide's table."""


def content_of(file: str) -> Any:
    """The manifest."""
    return yaml.safe_load((EXAMPLES / file).read_text(encoding="utf-8"))


def at_path(value: Any, keys: list[str]) -> Iterator[Any]:
    """What is at a path of the table: `[]` is each item, `<role>` each member."""
    if not keys:
        yield value
        return
    key, rest = keys[0], keys[1:]
    if key.startswith("<"):
        found = list(value.values())
    else:
        found = [value[key.removesuffix("[]")]]
        if key.endswith("[]"):
            found = found[0]
    for one in found:
        yield from at_path(one, rest)


def all_keys(value: Any) -> list[str]:
    """Every key of Coterie anywhere in a manifest."""
    if isinstance(value, dict):
        own = [key for key in value if str(key).startswith(names.PREFIX)]
        return own + [key for one in value.values() for key in all_keys(one)]
    if isinstance(value, list):
        return [key for one in value for key in all_keys(one)]
    return []


def test_the_guide_names_each_example():
    """With the place of its annotations."""
    assert sorted(PATHS) == [path.name for path in FILES]


@pytest.mark.parametrize("file", sorted(PATHS))
def test_annotations_are_at_the_place_that_the_guide_names(file):
    """All of them, and each is one that Coterie reads."""
    content = content_of(file)
    found = list(at_path(content, PATHS[file].split(".")))
    for keys in found:
        assert parse_policy(keys) != parse_policy({})
    assert sorted(all_keys(content)) == sorted(key for one in found for key in one)


@pytest.mark.parametrize(
    "file", [one for one in sorted(PATHS) if content_of(one)["kind"] in {"Pod", *TEMPLATES}]
)
def test_explain_reads_the_examples_of_kubernetes_own_kinds(file):
    """As the guide has its reader do, on machines of which one has what the pod requires."""
    path = str(EXAMPLES / file)
    done = called(command_line.main, "explain", path, "--cluster", "1x dgx-1-v100, 1x 8x-l4")
    assert done.exit_code == 0, done.output
    explained = json.loads(done.stdout)
    assert explained["request"]["affinity"] == "nvlink"
    assert explained["nodes"][0]["node"] == "dgx-1-v100-0"
    assert explained["nodes"][0]["fits"] is True
