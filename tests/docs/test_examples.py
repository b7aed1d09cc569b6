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
from topology.annotations import Affinity, parse_group, parse_policy
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = ROOT / "docs" / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))
GUIDE = (ROOT / "docs" / "user-guide.md").read_text(encoding="utf-8")
ROW = re.compile(r"\(examples/(?P<file>[a-z-]+\.yaml)\) \| `(?P<path>[^`]+)`")
PATHS = {row["file"]: row["path"] for row in ROW.finditer(GUIDE)}
"""Of each example, the path of its annotations by the user guide's table."""
GROUPS = [path.name for path in FILES if path.stem.endswith("-group")]


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
        assert parse_policy(keys) != parse_policy({}) or parse_group(keys) is not None
    assert sorted(all_keys(content)) == sorted(key for one in found for key in one)


def workers(content: Any) -> int:
    """How many pods with GPUs the manifest of a group makes."""
    spec = content["spec"]
    match content["kind"]:
        case "JobSet":
            jobs = spec["replicatedJobs"]
            return sum(one["replicas"] * one["template"]["spec"]["parallelism"] for one in jobs)
        case "LeaderWorkerSet":
            return int(spec["replicas"] * spec["leaderWorkerTemplate"]["size"])
        case "PyTorchJob":
            return sum(one["replicas"] for one in spec["pytorchReplicaSpecs"].values())
        case _:
            return int(spec["parallelism"])


@pytest.mark.parametrize("file", GROUPS)
def test_a_group_is_as_large_as_its_controller_makes_it(file):
    """With a larger size the example would wait for ever; each pod says the same."""
    content = content_of(file)
    (wish,) = {parse_group(keys) for keys in at_path(content, PATHS[file].split("."))}
    assert wish is not None
    assert wish.size == workers(content)


@pytest.mark.parametrize(
    "file", [one for one in sorted(PATHS) if content_of(one)["kind"] in {"Pod", *TEMPLATES}]
)
def test_explain_reads_the_examples_of_kubernetes_own_kinds(file):
    """As the guide has its reader do, on machines of which one has what the pod requires."""
    path = str(EXAMPLES / file)
    done = called(command_line.main, "explain", path, "--cluster", "1x dgx-1-v100, 1x 8x-l4")
    assert done.exit_code == 0, done.output
    explained = json.loads(done.stdout)
    (keys,) = at_path(content_of(file), PATHS[file].split("."))
    affinity = parse_policy(keys).affinity
    assert explained["request"]["affinity"] == affinity.value
    best = {Affinity.NVLINK: "dgx-1-v100-0", Affinity.ANY: "8x-l4-0"}  # by itself, by its worth
    assert explained["nodes"][0]["node"] == best[affinity]
    assert explained["nodes"][0]["fits"] is True
