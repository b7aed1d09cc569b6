"""How devices are shared: the section `sharing` of NVIDIA's configuration file.

Which resources have replicas, under which names, and whether a container may request more than one.
The format and its meaning are NVIDIA's (k8s-device-plugin v0.20.0, api/config/v1/sharing.go and
replicas.go):

    sharing:
      timeSlicing:
        renameByDefault: false              # true: the resource is called <name>.shared
        failRequestsGreaterThanOne: false   # true: a container may ask for one part only
        resources:                          # needed, at least one
          - name: nvidia.com/gpu            # without a domain: the plugin's own
            replicas: 4                     # at least 2

`rename` and `devices` of a resource are read and ignored, as NVIDIA's plugin does
(`DisableResourceNamingInConfig`); a note says so. `sharing.mps` is refused. It must never read the
file itself, nor fall back to a guess: anything else raises `SettingsError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from topology.errors import quote
from topology.model import Field

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MAX_REPLICAS",
    "NO_SHARING",
    "SHARED_SUFFIX",
    "SharedPolicy",
    "TimeSlicing",
    "check_resource_name",
    "read_sharing",
]

SHARED_SUFFIX = ".shared"
"""(k8s-device-plugin v0.20.0, api/config/v1/consts.go, DefaultSharedResourceNameSuffix.)"""
MAX_REPLICAS = 1024
"""Most parts of one device. NVIDIA sets no limit; 16 GPUs in 1024 parts are a list of 1 MB, and
the kubelet's client takes 4 MB (the default of Go's gRPC)."""
_MIN_REPLICAS = 2
"""(replicas.go: "number of replicas must be >= 2".)"""
_MAX_NAME = 63
"""Longest resource name, domain included (consts.go, MaxResourceNameLength)."""
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_RESOURCE = re.compile(rf"{_DOMAIN}/{_DOMAIN}")
"""A name is a DNS subdomain itself (resources.go, NewResourceName)."""


class SharedPolicy(Enum):
    """Which of several shared devices comes first (SHARED_DEVICES_ALLOCATION_POLICY)."""

    DISTRIBUTED = "distributed"
    """The one of which the least is taken, so that containers share as little as can be."""
    PACKED = "packed"
    """The one of which the most is taken, so that others stay whole."""


@dataclass(frozen=True, slots=True)
class TimeSlicing:
    """Resources that are given out several times over.

    `replicas` says by resource name (as before renaming) into how many parts each of its devices is
    divided. `notes` tell people what was ignored.
    """

    replicas: Mapping[str, int]
    is_renamed: bool = False
    is_one_only: bool = False
    notes: tuple[str, ...] = ()

    def name_of(self, resource: str) -> str:
        """What a resource is called once it is shared."""
        is_new = self.is_renamed and resource in self.replicas
        return resource + SHARED_SUFFIX if is_new else resource


NO_SHARING = TimeSlicing({})


def read_sharing(section: object, *, domain: str = "nvidia.com") -> TimeSlicing:
    """Read the section as the file's YAML gives it; None where the file has none.

    Raises `SettingsError`.

    >>> read_sharing({"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4}]}}).replicas
    {'nvidia.com/gpu': 4}
    """
    if section is None:
        return NO_SHARING
    root = Field(section, "sharing", SettingsError)
    root.only("timeSlicing", "mps")
    if _given(root, "mps") is not None:
        msg = (
            "sharing.mps is set, expected sharing.timeSlicing or nothing: GPUs cannot be shared by "
            "MPS yet"
        )
        raise SettingsError(msg)
    slicing = _given(root, "timeSlicing")
    if slicing is None:
        return NO_SHARING
    slicing.only("renameByDefault", "failRequestsGreaterThanOne", "resources")
    resources = slicing.need("resources")
    if not resources.items():
        resources.fail("at least one resource")
    replicas: dict[str, int] = {}
    notes: list[str] = []
    for one in resources.items():
        name, count = _read_resource(one, domain, notes)
        if name in replicas:
            msg = f"{one.where}.name is {quote(name)} again, expected each name once"
            raise SettingsError(msg)
        replicas[name] = count
    return TimeSlicing(
        replicas=replicas,
        is_renamed=slicing.flag_or_none("renameByDefault") or False,
        is_one_only=slicing.flag_or_none("failRequestsGreaterThanOne") or False,
        notes=tuple(notes),
    )


def check_resource_name(name: str) -> str:
    """A resource name that the kubelet will take, or `SettingsError`."""
    if len(name) > _MAX_NAME or not _RESOURCE.fullmatch(name):
        msg = (
            f"resource name is {quote(name)}, expected domain/name in lower case, at most "
            f"{_MAX_NAME} characters"
        )
        raise SettingsError(msg)
    return name


def _read_resource(one: Field, domain: str, notes: list[str]) -> tuple[str, int]:
    one.only("name", "replicas", "rename", "devices")
    name, replicas = one.need("name").text(), one.need("replicas")
    if not _MIN_REPLICAS <= replicas.integer() <= MAX_REPLICAS:
        replicas.fail(f"a whole number of {_MIN_REPLICAS}..{MAX_REPLICAS}")
    where = one.where
    if _given(one, "rename") is not None:
        notes.append(f"{where}.rename is ignored, as by NVIDIA's plugin: use renameByDefault")
    devices = one.get("devices")
    if devices is not None and devices.value != "all":
        notes.append(f"{where}.devices is ignored, as by NVIDIA's plugin: all devices are shared")
    whole = name if name.startswith(f"{domain}/") else f"{domain}/{name}"
    return check_resource_name(whole), replicas.integer()


def _given(section: Field, key: str) -> Field | None:
    """A member that is there and not null, which says nothing in Go."""
    member = section.get(key)
    return None if member is None or member.value is None else member
