"""The section `sharing` of NVIDIA's configuration file.

(k8s-device-plugin v0.20.0, api/config/v1/sharing.go and replicas.go):

    sharing:
      timeSlicing:
        renameByDefault: false              # true: the resource is called <name>.shared
        failRequestsGreaterThanOne: false   # true: a container may request one replica only
        resources:                          # needed, at least one
          - name: nvidia.com/gpu            # without a domain: the plugin's own
            replicas: 4                     # at least 2

`rename` and `devices` of a resource are ignored, as by NVIDIA's plugin
(`DisableResourceNamingInConfig`); a note says so. `sharing.mps` is refused, and so is anything
else.
"""

from __future__ import annotations

from kube.errors import SettingsError
from plugin.machine import NO_SHARING, TimeSlicing, check_resource_name
from topology.errors import quote
from topology.model import Field

__all__ = ["MAX_REPLICAS", "SHARING", "read_sharing"]

SHARING = "sharing"
"""Key of the section."""
_SHARED_SUFFIX = ".shared"
"""(k8s-device-plugin v0.20.0, api/config/v1/consts.go, DefaultSharedResourceNameSuffix.)"""
MAX_REPLICAS = 1024
"""NVIDIA sets no limit; 1024 replicas of 16 GPUs are a list of 1 MB, and the kubelet's client takes
4 MB (the default of Go's gRPC)."""
_MIN_REPLICAS = 2
"""(replicas.go: "number of replicas must be >= 2".)"""


def read_sharing(section: object, *, domain: str = "nvidia.com") -> TimeSlicing:
    """Read the section as the file's YAML gives it; None where the file has none.

    Raises `SettingsError`.

    >>> read_sharing({"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4}]}}).replicas
    {'nvidia.com/gpu': 4}
    """
    if section is None:
        return NO_SHARING
    root = Field(section, SHARING, SettingsError)
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
        suffix=_SHARED_SUFFIX if slicing.flag_or_none("renameByDefault") else "",
        is_one_only=slicing.flag_or_none("failRequestsGreaterThanOne") or False,
        notes=tuple(notes),
    )


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
