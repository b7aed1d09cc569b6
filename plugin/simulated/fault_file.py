"""What is wrong with a simulated machine, as its file of faults says.

What it answers: which faults a text describes. It must never read a file, nor remember what the
text said before (`plugin.simulated.reader` does).

The text is YAML (so JSON too) of the keys below, all optional; an empty text means that nothing is
wrong. A GPU is named by its index or its uuid. docs/simulate.md explains each key.

    lost        [GPU, ...]
    xid         [{gpu, code, at, instance}]; without gpu nobody knows which; at is a number or text
    links_down  [{gpus: [GPU, GPU], n}] of a pair's own links, [{gpu, n}] of a GPU's switch ports;
                without n all of them
    mig         {GPU: [profile, ...]}, the GPU's MIG instances in order

Anything else is refused with its place, the value and what was expected: a typing error in a list
of faults would else look like a healthy machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kube.documents import read_yaml
from kube.errors import DocumentError
from plugin.simulated.broken_links import LinksDown, without_links
from topology.errors import ImportFormatError
from topology.model import MAX_LINKS, Field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.model import NodeTopology

__all__ = ["FaultPlan", "XidEntry", "parse_faults", "profile_memory_mib"]

MAX_TEXT_CHARACTERS = 64 * 1024
"""Longest text, in characters: a thousand faults."""
MAX_XID = 2**32 - 1
"""The highest code: XIDs are 32-bit numbers in the driver (nverror.h)."""
MAX_INSTANCES = 7
"""Most MIG instances of a GPU (7 of 1g on A100 and later; NVIDIA MIG user guide)."""

_PROFILE = re.compile(r"(?:[1-7]c\.)?[1-7]g\.([1-9][0-9]{0,3})gb(?:[+-][a-z.]+)*")
"""A profile as NVIDIA names it: 1g.10gb, 1c.3g.40gb, 1g.10gb+me."""


@dataclass(frozen=True, slots=True)
class XidEntry:
    """An XID to tell of, once. `gpu` is an index; `instance` the index of a MIG instance on it."""

    gpu: int | None
    code: int
    at: str = ""
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All that is wrong, by GPU index; `mig` has the profiles of each GPU that is split."""

    lost: frozenset[int] = frozenset()
    xids: tuple[XidEntry, ...] = ()
    links_down: tuple[LinksDown, ...] = ()
    mig: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])


def parse_faults(text: str, topology: NodeTopology) -> FaultPlan:
    """Read a text of faults of this machine.

    Raises `ImportFormatError`, and nothing else, where the text is no such thing or names what the
    machine does not have.

    >>> from topology.recordings import load_recording
    >>> parse_faults("{lost: [3], links_down: [{gpus: [0, 3]}]}", load_recording("dgx-1-v100"))
    FaultPlan(lost=frozenset({3}), xids=(), links_down=(LinksDown(gpus=(0, 3), n=None),), mig={})
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
    root.only("lost", "xid", "links_down", "mig")
    mig = _read_mig(root.get("mig"), topology)
    plan = FaultPlan(
        lost=frozenset(_gpu(one, topology) for one in _items(root, "lost")),
        xids=tuple(_read_xid(one, topology, mig) for one in _items(root, "xid")),
        links_down=tuple(_read_links(one, topology) for one in _items(root, "links_down")),
        mig=mig,
    )
    without_links(topology, plan.links_down)
    return plan


def _items(root: Field, key: str) -> tuple[Field, ...]:
    member = root.get(key)
    return () if member is None else member.items()


def _gpu(one: Field, topology: NodeTopology) -> int:
    """The index of a GPU that is named by index or uuid."""
    indices = {gpu.uuid: index for index, gpu in enumerate(topology.gpus) if gpu.uuid}
    if isinstance(one.value, str) and one.value in indices:
        return indices[one.value]
    if type(one.value) is not int or not 0 <= one.value < topology.n_gpus:
        one.fail(f"a GPU of this machine: 0..{topology.n_gpus - 1}, or its uuid")
    return one.value


def _read_xid(one: Field, topology: NodeTopology, mig: Mapping[int, Sequence[str]]) -> XidEntry:
    one.only("gpu", "code", "at", "instance")
    named, code, at = one.get("gpu"), one.need("code"), one.get("at")
    if not 1 <= code.integer() <= MAX_XID:
        code.fail(f"an XID of 1..{MAX_XID}")
    gpu = None if named is None else _gpu(named, topology)
    instance = one.get("instance")
    n_instances = 0 if gpu is None else len(mig.get(gpu, ()))
    if instance is not None and not 0 <= instance.integer() < n_instances:
        instance.fail(f"the index of one of the GPU's {n_instances} MIG instances")
    return XidEntry(
        gpu=gpu,
        code=code.integer(),
        at="" if at is None else str(at.integer() if type(at.value) is int else at.text()),
        instance=None if instance is None else instance.integer(),
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


def _read_mig(split: Field | None, topology: NodeTopology) -> dict[int, tuple[str, ...]]:
    mig: dict[int, tuple[str, ...]] = {}
    if split is None:
        return mig
    keys = split.keys()
    for key in keys:
        profiles = split.need(key).items()
        name = int(key) if str(key).isdecimal() else key  # YAML reads 0: as a number, JSON as text
        gpu = _gpu(Field(name, f"a key of {split.where}", ImportFormatError), topology)
        if len(profiles) > MAX_INSTANCES or gpu in mig:
            split.fail(f"at most {MAX_INSTANCES} profiles for a GPU, each GPU once")
        for one in profiles:
            if _PROFILE.fullmatch(one.text()) is None:
                one.fail('a MIG profile such as "1g.10gb"')
        mig[gpu] = tuple(one.text() for one in profiles)
    return mig


def profile_memory_mib(profile: str) -> int | None:
    """The memory that a profile's name promises, in MiB."""
    match = _PROFILE.fullmatch(profile)
    return None if match is None else int(match[1]) * 1024
