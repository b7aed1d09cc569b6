"""Texts of neighbouring releases: what one writes the other reads, in either order.

`releases/<version>/` has what that release writes on Nodes and pods, a file for each text. The
newest folder is rewritten by `make golden` until it is released; older ones never change. Readers
ignore keys that they do not know and take any minor version, so a release reads the texts of its
neighbours exactly if these hold every key that it knows, with the values that it wrote itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from topology.annotations import (
    ContainerPlan,
    DeviceHold,
    DevicesReport,
    LastingFault,
    MissingDevices,
    Plan,
    TopologyManagerPolicy,
    TopologyManagerScope,
    UnhealthyDevice,
    decode_devices,
    decode_plan,
    encode_allocation,
    encode_devices,
    encode_plan,
)
from topology.model import (
    CpuPlatform,
    LinkKind,
    P2pAccess,
    PcieLevel,
    decode_topology,
    encode_topology,
)
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

RELEASES = Path(__file__).parent / "releases"
NEWEST = "0.1"
"""What this checkout becomes: the release whose texts it writes."""

GPU = "nvidia.com/gpu"
HOLD = DeviceHold("u1", "default", "train", "main", GPU, ("GPU-b", "GPU-c"))
POLICY, SCOPE = TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.POD
CONTAINERS = (
    ContainerPlan("init", GPU, ("GPU-b",)),
    ContainerPlan("main", GPU, ("GPU-a", "GPU-b")),
)
PLAN = Plan("n1", CONTAINERS, ("GPU-b", "GPU-a"), 7, 41.125, -5)
CLOSED = (LinkKind, PcieLevel, P2pAccess, CpuPlatform, TopologyManagerPolicy, TopologyManagerScope)
"""The closed sets whose members stand in the texts."""

TEXTS: dict[str, Callable[[], str]] = {
    "topology-nvswitch": lambda: encode_topology(load_recording("dgx-h100")),
    "topology-mesh": lambda: encode_topology(load_recording("dgx-1-v100")),
    "topology-xgmi": lambda: encode_topology(load_recording("8x-mi300x")),
    "devices-unhealthy": lambda: encode_devices(
        DevicesReport(12, (UnhealthyDevice("GPU-a", "XID 79"),), (HOLD,), POLICY, SCOPE)
    ),
    "devices-missing": lambda: encode_devices(
        DevicesReport(3, missing=(MissingDevices("u2", "default", "early", "main", GPU),))
    ),
    "devices-faults": lambda: encode_devices(
        DevicesReport(
            4,
            faults=(LastingFault("GPU-a", "XID", 79), LastingFault("GPU-b", "XID", 48, (7, 0))),
            boot="9f3c",
            polled_only=("GPU-c",),
        )
    ),
    "plan": lambda: encode_plan(PLAN),
    "allocated": lambda: encode_allocation("n1", CONTAINERS),
    "closed-sets": lambda: json.dumps(
        {one.__name__: [str(m.value) for m in one] for one in CLOSED}
    ),
}


def again(name: str, text: str) -> str:
    """What this release writes of what it reads there."""
    kind = name.partition("-")[0]
    if kind == "topology":
        return encode_topology(decode_topology(text))
    if kind == "devices":
        return encode_devices(decode_devices(text))
    if kind == "plan":
        return encode_plan(decode_plan(text))
    return text  # `allocated` is for users: no program reads it


def lost(old: object, new: object, where: str = "") -> list[str]:
    """The places of an old body that a newer one lacks or has otherwise, but for its version."""
    if isinstance(old, dict) and isinstance(new, dict):
        places = [lost(value, new.get(key), f"{where}.{key}") for key, value in old.items()]
        return [one for places_ in places for one in places_]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = zip(old, new, strict=True)
        places = [lost(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(pairs)]
        return [one for places_ in places for one in places_]
    if where == ".v":
        return [] if str(old).partition(".")[0] == str(new).partition(".")[0] else [where]
    return [] if old == new else [where]


def extended(body: object) -> object:
    """The body as a later minor version may write it: with keys of its own in every object."""
    if isinstance(body, dict):
        return {key: extended(value) for key, value in body.items()} | {"later": {"x": [1, None]}}
    return [extended(one) for one in body] if isinstance(body, list) else body


def released() -> list[Path]:
    """All texts of all releases."""
    return sorted(RELEASES.glob("*/*.json"))


def label(path: Path) -> str:
    """Release and text."""
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("name", TEXTS)
def test_the_newest_texts_are_what_this_checkout_writes(name, check_golden):
    """So that the next release has something to be compared with."""
    check_golden(RELEASES / NEWEST / f"{name}.json", TEXTS[name]() + "\n")


def test_every_text_of_a_release_is_compared():
    """A file of another name would not be read."""
    assert {path.stem for path in released()} == TEXTS.keys()
    assert (RELEASES / NEWEST).is_dir()


@pytest.mark.parametrize(
    "path", [one for one in released() if one.stem != "closed-sets"], ids=label
)
def test_texts_of_each_release_are_read_without_loss(path):
    """Of what an older release wrote every fact is still there, in the place where it looks."""
    text = path.read_text(encoding="utf-8").strip()
    assert lost(json.loads(text), json.loads(again(path.stem, text))) == []


@pytest.mark.parametrize(
    "path", [one for one in released() if one.stem != "closed-sets"], ids=label
)
def test_texts_of_a_later_minor_version_are_read(path):
    """What such a release adds is ignored, wherever it stands; the rest is the same value."""
    text = path.read_text(encoding="utf-8").strip()
    body = extended(json.loads(text))
    assert isinstance(body, dict)
    if isinstance(body["v"], str):
        body["v"] = body["v"].partition(".")[0] + ".99"
    assert again(path.stem, text) == again(path.stem, json.dumps(body)) or path.stem == "allocated"


@pytest.mark.parametrize("path", sorted(RELEASES.glob("*/closed-sets.json")), ids=label)
def test_closed_sets_have_no_new_member(path):
    """An older reader refuses a text with a value that it does not know: that takes a new major."""
    kinds: dict[str, type[Enum]] = {one.__name__: one for one in CLOSED}
    for name, values in json.loads(path.read_text(encoding="utf-8")).items():
        assert {str(one.value) for one in kinds[name]} == set(values)


def test_a_lost_fact_is_found():
    """The comparison itself: a key that is gone, another value, a list that is shorter."""
    old = {"v": "1.0", "a": 1, "b": [{"c": 2}], "d": [1]}
    assert lost(old, {"v": "1.3", "a": 1, "b": [{"c": 2, "e": 3}], "d": [1], "f": 4}) == []
    assert lost(old, {"v": "2.0", "b": [{"c": 3}], "d": []}) == [".v", ".a", ".b[0].c", ".d"]
