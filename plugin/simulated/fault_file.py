"""The faults of a simulated machine, from the text of its file of faults.

The text is YAML (so JSON too) of the keys below, all optional; an empty text means that nothing is
wrong. A GPU is named by its index or its uuid. docs/simulate.md explains each key.

    lost        [GPU, ...]
    <codes>     [{gpu, code, at, instance}]; without gpu it is unknown which; at is a number or text
    links_down  [{gpus: [GPU, GPU], n}] of a pair's own links, [{gpu, n}] of a GPU's switch ports;
                without n all of them
    <partitions> {GPU: [kind, ...]}, the GPU's partitions in order

<codes> and <partitions> are the vendor's names in lower case (`SimulatedHardware`).

Anything else is refused with its place, the value and what was expected: a typing error in a list
of faults would else look like a healthy machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kube.documents import read_yaml
from kube.errors import DocumentError
from plugin.simulated.broken_links import LinksDown, without_links
from topology.errors import ImportFormatError
from topology.model import MAX_LINKS, Field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.machine import SimulatedHardware
    from topology.model import NodeTopology

__all__ = ["FaultEntry", "FaultPlan", "parse_faults"]

MAX_TEXT_CHARACTERS = 64 * 1024
"""Longest text, in characters: a thousand faults."""
MAX_CODE = 2**32 - 1
"""Highest fault code: drivers have 32 bits for it."""


@dataclass(frozen=True, slots=True)
class FaultEntry:
    """A fault to report, once. `gpu` is an index; `partition` that of a partition on it."""

    gpu: int | None
    code: int
    at: str = ""
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All that is wrong, by GPU index; `partitions` has the kinds of each GPU that is split."""

    lost: frozenset[int] = frozenset()
    events: tuple[FaultEntry, ...] = ()
    links_down: tuple[LinksDown, ...] = ()
    partitions: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])


def parse_faults(text: str, topology: NodeTopology, hardware: SimulatedHardware) -> FaultPlan:
    """Read a text of faults of this machine.

    Raises `ImportFormatError`, and nothing else, where the text is no such thing or names what the
    machine does not have.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        msg = f"faults of {len(text)} characters, expected at most {MAX_TEXT_CHARACTERS}"
        raise ImportFormatError(msg)
    try:
        body = read_yaml(text)
    except DocumentError as error:
        raise ImportFormatError(str(error)) from error
    if body is None:
        return FaultPlan()
    root = Field(body, "", ImportFormatError)
    codes, partitions = hardware.codes.lower(), hardware.partitions.lower()
    root.only("lost", codes, "links_down", partitions)
    split = _read_partitions(root.get(partitions), topology, hardware)
    plan = FaultPlan(
        lost=frozenset(_gpu(one, topology) for one in root.items_at("lost")),
        events=tuple(_read_event(one, topology, split, hardware) for one in root.items_at(codes)),
        links_down=tuple(_read_links(one, topology) for one in root.items_at("links_down")),
        partitions=split,
    )
    without_links(topology, plan.links_down)
    return plan


def _gpu(one: Field, topology: NodeTopology) -> int:
    """The index of a GPU that is named by index or uuid."""
    indices = {gpu.uuid: index for index, gpu in enumerate(topology.gpus) if gpu.uuid}
    if isinstance(one.value, str) and one.value in indices:
        return indices[one.value]
    if type(one.value) is not int or not 0 <= one.value < topology.n_gpus:
        one.fail(f"a GPU of this machine: 0..{topology.n_gpus - 1}, or its uuid")
    return one.value


def _read_event(
    one: Field,
    topology: NodeTopology,
    split: Mapping[int, Sequence[str]],
    hardware: SimulatedHardware,
) -> FaultEntry:
    one.only("gpu", "code", "at", "instance")
    named, code, at = one.get("gpu"), one.need("code"), one.get("at")
    if not 1 <= code.integer() <= MAX_CODE:
        code.fail(f"an {hardware.codes} of 1..{MAX_CODE}")
    gpu = None if named is None else _gpu(named, topology)
    instance = one.get("instance")
    n_instances = 0 if gpu is None else len(split.get(gpu, ()))
    if instance is not None and not 0 <= instance.integer() < n_instances:
        instance.fail(
            f"the index of one of the GPU's {n_instances} {hardware.partitions} instances"
        )
    return FaultEntry(
        gpu=gpu,
        code=code.integer(),
        at="" if at is None else str(at.integer() if type(at.value) is int else at.text()),
        partition=None if instance is None else instance.integer(),
    )


def _read_links(one: Field, topology: NodeTopology) -> LinksDown:
    one.only("gpus", "gpu", "n")
    n = one.integer_or_none("n")
    if n is not None and not 1 <= n <= MAX_LINKS:
        one.need("n").fail(f"a count of 1..{MAX_LINKS} links")
    pair = one.get("gpus")
    if pair is None:
        return LinksDown((_gpu(one.need("gpu"), topology),), n)
    if one.get("gpu") is not None:
        one.fail("either gpu or gpus")
    gpus = tuple(sorted(_gpu(gpu, topology) for gpu in pair.tuple_of(2)))
    if gpus[0] == gpus[1]:
        pair.fail("two different GPUs")
    return LinksDown(gpus, n)


def _read_partitions(
    split: Field | None, topology: NodeTopology, hardware: SimulatedHardware
) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    if split is None:
        return found
    keys = split.keys()
    for key in keys:
        kinds = split.need(key).items()
        name = int(key) if str(key).isdecimal() else key  # YAML reads 0: as a number, JSON as text
        gpu = _gpu(Field(name, f"a key of {split.where}", ImportFormatError), topology)
        if gpu in found:
            split.fail("each GPU once")
        for place, one in enumerate(kinds):
            if hardware.partition(one.text(), "", place, "") is None:
                one.fail(hardware.partition_rule)
        found[gpu] = tuple(one.text() for one in kinds)
    return found
