"""The scheduler's configuration, where it is a ConfigMap, and whether the extender agrees with it.

What must agree, and why, is in docs/install.md ("Scheduler configuration") and with each of the
extender's settings. On kubeadm the configuration is a file of the host, which is not read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.installation.scheduler_configs import scheduler_configs
from topology.errors import quote
from topology.model import object_at, objects_at, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_coterie.cluster import Object
    from kubectl_coterie.installation.seen import Seen

__all__ = ["check_scheduler_config", "extender_sections"]

CHECK = "scheduler config"
VERBS = {
    "filter": "nodes are not tried for a GPU set",
    "prioritize": "nodes are not ranked by their GPU sets",
    "bind": "pods are bound without a plan",
    "preempt": "a preemption may evict pods whose GPUs make no room",
}
"""The extender's routes, each with what becomes of pods without it."""
_OPTIONAL_VERB = "preempt"
GROUPS_TIMEOUT_S = 30.0
"""As in the chart: binds of a group's members are held until all of them are there."""
DEFAULT_TIMEOUT_S = 5.0
"""Of httpTimeout (kubernetes v1.36.3, pkg/scheduler/extender.go) and of `http_timeout_s`."""
DEFAULT_PORT = 8888
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_ALL_NODES = 100
_EDIT = "change it in the scheduler's configuration and restart kube-scheduler (docs/install.md)"
_AGREE = "make both equal, and restart the one that was changed (docs/install.md)"
_RAISE = (
    f"set it to {GROUPS_TIMEOUT_S:g}s and the extender's http_timeout_s to {GROUPS_TIMEOUT_S:g}; "
    "where no pods form groups leave both"
)
_ON_HOST = (
    "on each control-plane host compare /etc/kubernetes/coterie/scheduler-config.yaml with the "
    "extender's environment in the manifest of kube-scheduler"
)


def check_scheduler_config(seen: Seen) -> Iterator[Finding]:
    """A finding for each disagreement, or one that says there is none; in audit mode nothing."""
    if seen.is_audit:
        return
    configs = list(scheduler_configs(seen.config_maps))
    if not configs:
        yield _unread(seen)
    for where, config in configs:
        faults = [*_profiles(config, seen), *_of_sections(config, seen)]
        if faults:
            for state, about, todo in faults:
                yield Finding(CHECK, state, f"{where}: {about}", todo)
        else:
            yield Finding(CHECK, Status.OK, f"{where} agrees with the extender's settings")


def extender_sections(seen: Seen) -> Iterator[tuple[str, Object]]:
    """Coterie's entry under `extenders` of each configuration, and where that is."""
    for where, config in scheduler_configs(seen.config_maps):
        for section in _sections(config, seen):
            yield where, section


def _unread(seen: Seen) -> Finding:
    """Why no configuration was read."""
    if seen.programs.value is None:
        return Finding(CHECK, Status.NOT_KNOWN, seen.programs.missing)
    if not seen.schedulers:
        return Finding(
            CHECK,
            Status.NOT_KNOWN,
            "no kube-scheduler that calls the extender was found",
            _ON_HOST,
        )
    if any("scheduler-config" in path for one in seen.schedulers for path in one.host_paths):
        about = "kube-scheduler's configuration is a file of the control-plane host"
        return Finding(CHECK, Status.NOT_KNOWN, about, _ON_HOST)
    missing = next((read.missing for read in seen.config_maps.values() if read.missing), "")
    about = missing or "no ConfigMap of kube-scheduler's pods holds its configuration"
    return Finding(CHECK, Status.NOT_KNOWN, about)


_Fault = tuple[Status, str, str]


def _profiles(config: Object, seen: Seen) -> Iterator[_Fault]:
    profiles = list(objects_at(config, "profiles"))
    names = {text_at(profile, "schedulerName") or "default-scheduler" for profile in profiles}
    served = set(seen.scheduler_names)
    if names != served:
        about = (
            f"its profiles are {_words(names)}, the extender's setting scheduler_names is "
            f"{_words(served)}: a bind of another scheduler's pod is refused"
        )
        yield Status.FAILED, about, _AGREE
    for profile in profiles:
        share = profile.get("percentageOfNodesToScore", config.get("percentageOfNodesToScore"))
        if share != _ALL_NODES:
            about = (
                f"percentageOfNodesToScore of profile {text_at(profile, 'schedulerName')} is "
                f"{share}, expected {_ALL_NODES}: nodes that fit may never be tried"
            )
            yield Status.WARNING, about, _EDIT


def _of_sections(config: Object, seen: Seen) -> Iterator[_Fault]:
    sections = _sections(config, seen)
    if not sections:
        yield Status.FAILED, "it has no extender that manages these GPUs", _EDIT
    for section in sections:
        yield from _verbs(section)
        yield from _booleans(section)
        yield from _resources(section, seen)
        yield from _timeout(section, seen)
        yield from _port(section, seen)


def _verbs(section: Object) -> Iterator[_Fault]:
    for verb, risk in VERBS.items():
        given = text_at(section, f"{verb}Verb")
        if given == verb:
            continue
        state = Status.WARNING if verb == _OPTIONAL_VERB and not given else Status.FAILED
        what = (
            f"is {quote(given)}, a path that the extender does not have" if given else "is not set"
        )
        risks = "" if given else f": {risk}"
        yield state, f"{verb}Verb {what}, expected {verb}{risks}", _EDIT


def _booleans(section: Object) -> Iterator[_Fault]:
    if section.get("nodeCacheCapable") is not True:
        yield (
            Status.FAILED,
            "nodeCacheCapable is not true: the extender takes node names",
            _EDIT,
        )
    if section.get("ignorable") is True:
        about = "ignorable is true: while the extender fails, pods are bound without a plan"
        yield Status.WARNING, about, _EDIT
    for one in objects_at(section, "managedResources"):
        if one.get("ignoredByScheduler") is True:
            about = f"ignoredByScheduler of {text_at(one, 'name')} is true: nothing counts GPUs"
            yield Status.WARNING, about, _EDIT


def _resources(section: Object, seen: Seen) -> Iterator[_Fault]:
    managed = {text_at(one, "name") for one in objects_at(section, "managedResources")}
    placed = set(seen.resources)
    if managed != placed:
        about = (
            f"managedResources are {_words(managed)}, the extender's setting resources is "
            f"{_words(placed)}"
        )
        yield Status.FAILED, about, _AGREE


def _timeout(section: Object, seen: Seen) -> Iterator[_Fault]:
    given = section.get("httpTimeout")
    there_s = DEFAULT_TIMEOUT_S if given is None else _duration_s(str(given))
    for program in seen.extenders:
        text = program.settings.get("http_timeout_s")
        here_s = DEFAULT_TIMEOUT_S if text is None else _number(text)
        if there_s != here_s:
            about = (
                f"httpTimeout is {given or f'{DEFAULT_TIMEOUT_S:g}s'}, http_timeout_s of the "
                f"extender in {program.where} {text or f'{DEFAULT_TIMEOUT_S:g}'}: binds may be cut "
                "off while they are written"
            )
            yield Status.FAILED, about, _AGREE
    if there_s is not None and there_s < GROUPS_TIMEOUT_S:
        about = (
            f"httpTimeout is {given or f'{DEFAULT_TIMEOUT_S:g}s'}, below the "
            f"{GROUPS_TIMEOUT_S:g}s of the chart: groups of pods (coterie.gpu/group-size) may be "
            "given up while their members are bound"
        )
        yield Status.WARNING, about, _RAISE


def _port(section: Object, seen: Seen) -> Iterator[_Fault]:
    url = urlsplit(text_at(section, "urlPrefix"))
    ports = {
        _number(program.settings.get("listen_port", str(DEFAULT_PORT)))
        for program in seen.extenders
    }
    is_service = url.hostname is not None and url.hostname.endswith((".svc", ".cluster.local"))
    if ports and not is_service and _port_of(url) not in ports:
        shown = ", ".join(f"{port:g}" for port in sorted(port for port in ports if port))
        about = f"urlPrefix calls port {_port_of(url)}, the extender's listen_port is {shown}"
        yield Status.FAILED, about, _AGREE
    if url.scheme == "https" and not _has_ca(section):
        about = "urlPrefix is https and tlsConfig has no caFile: the extender is not verified"
        yield Status.WARNING, about, _EDIT


def _port_of(url: SplitResult) -> int | None:
    try:
        return url.port
    except ValueError:
        return None


def _has_ca(section: Object) -> bool:
    tls = object_at(section, "tlsConfig")
    return bool(text_at(tls, "caFile") or text_at(tls, "caData"))


def _sections(config: Object, seen: Seen) -> list[Object]:
    """Of several extenders those that manage the GPUs which Coterie places."""
    sections = list(objects_at(config, "extenders"))
    if len(sections) == 1:
        return sections
    placed = set(seen.resources)
    return [
        section
        for section in sections
        if placed & {text_at(one, "name") for one in objects_at(section, "managedResources")}
    ]


def _duration_s(text: str) -> float | None:
    """A duration as Go writes it (`5s`, `1m30s`); None where it is none.

    >>> _duration_s("1m30s"), _duration_s("5")
    (90.0, None)
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _words(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "empty"
