"""What became of every pod of a run on real kubelets: plan, what the kubelet gave, what was seen.

Records for each container that requested GPUs three lists of ids, from three independent sources:
the plan on the pod (extender), PodResources (kubelet), and `NVIDIA_VISIBLE_DEVICES` as the
container's own program found it. It also reports whether two containers ever held one GPU at a
time, and how each pod that failed did. It judges nothing else.

It must never have the kubelets do what they would not do without it: PodResources is read for one
pod at a time, never as a list (plugin/kubelet/admission_gate.py), and who has what at one moment
is read from their checkpoints, which they write after each allocation.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import grpc
import httpx

from plugin.pods import read_checkpoint
from tests.cluster.fleet.workload import PODS, RESOURCE
from tests.cluster.node.real_pods import has_ended
from tests.cluster.node.stub_plugin import VARIABLE, held_by
from topology.annotations import decode_plan
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.node.kubelet_node import KubeletNode

__all__ = ["NO_REASON", "ContainerRecord", "LoopRecord", "Verdict"]

NO_REASON = "no reason, and no container failed"

UNHELD_SHARE = 0.05
"""Of a run's containers the kubelet may have been asked too late: this process can stand still for
as long as one of them runs."""
_SAMPLE_EVERY_S = 0.15
_AGAIN_EVERY = 5
"""One in so many samples also reads pods whose devices are known already: the kubelet answers 100
requests a second and 10 at once, for all clients together."""
_RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One container with GPUs. What a source did not report is empty; ids are sorted.

    `held` is None for init containers, which PodResources leaves out, and where the kubelet was not
    asked while the container ran; `seen` where its log had been removed before it was read.
    """

    node: str
    pod: str
    container: str
    is_init: bool
    size: int
    planned: tuple[str, ...]
    held: tuple[str, ...] | None
    seen: tuple[str, ...] | None

    @property
    def is_as_planned(self) -> bool:
        """Whether all sources that report it agree."""
        return self.sources == {self.planned}

    @property
    def sources(self) -> set[tuple[str, ...]]:
        """What is known of its devices, but for the plan."""
        return {one for one in (self.held, self.seen) if one is not None}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A whole run."""

    containers: tuple[ContainerRecord, ...]
    """Those of pods that succeeded on real nodes."""
    simulated: tuple[ContainerRecord, ...]
    """Those of pods that succeeded on other nodes, where the plan is all that there is."""
    failures: Mapping[str, int]
    """Pods that did not, by the reason that the pod gives, else its container."""
    messages: tuple[str, ...]
    """What the status of each pod that failed says, with its name and node."""
    shared: tuple[str, ...]
    """GPUs that two containers held at one time, in words."""

    @property
    def planned(self) -> tuple[ContainerRecord, ...]:
        """Those with a plan, of which more is known."""
        return tuple(one for one in self.containers if one.planned and one.sources)

    @property
    def astray(self) -> tuple[ContainerRecord, ...]:
        """Those that had a plan and got something else."""
        return tuple(one for one in self.planned if not one.is_as_planned)

    @property
    def is_watched(self) -> bool:
        """Whether the kubelet was asked of all containers, init ones aside, but `UNHELD_SHARE`."""
        unheld = [one for one in self.containers if one.held is None and not one.is_init]
        return len(unheld) <= UNHELD_SHARE * len(self.containers)

    @property
    def unread(self) -> tuple[ContainerRecord, ...]:
        """Those whose own word is missing."""
        return tuple(one for one in self.containers if one.seen is None)

    def summary(self) -> str:
        """One line for people, and one for each pod that failed."""
        n_planned, n_astray = len(self.planned), len(self.astray)
        kept = f"{n_planned - n_astray} of {n_planned} planned containers got their plan"
        unplanned = sum(1 for one in self.containers if not one.planned)
        failed = f"pods failed: {dict(self.failures) or 'none'}"
        ran = Counter(one.node for one in (*self.containers, *self.simulated))
        unread = f"{len(self.unread)} without a log"
        line = f"{kept}; {unplanned} without a plan, {unread}; {failed}; containers: {dict(ran)}"
        return "\n  ".join((line, *self.messages))


@dataclass
class LoopRecord:
    """Watches pods and kubelets from threads of its own, inside a `with` block."""

    control_plane: ControlPlane
    nodes: Sequence[KubeletNode]
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Every pod by uid, as it was last."""
    shared: list[str] = field(default_factory=list)
    _held: dict[tuple[str, str, str], set[tuple[str, ...]]] = field(default_factory=dict)
    _seen: dict[tuple[str, str], tuple[str, ...] | None] = field(default_factory=dict)
    _ends: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Begin."""
        self._threads = [threading.Thread(target=self._follow)]
        self._threads += [threading.Thread(target=self._sample, args=(one,)) for one in self.nodes]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def verdict(self) -> Verdict:
        """Judge what was seen so far; logs are read as pods end, so nothing is missed."""
        failures: Counter[str] = Counter()
        messages: list[str] = []
        containers: list[ContainerRecord] = []
        for pod in list(self.pods.values()):
            status = pod["status"]
            if status.get("phase") == "Failed":
                failures[_why(status)] += 1
                message = status.get("message", "")
                where = f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')}"
                messages.append(f"{where}: {message}")
            if status.get("phase") == "Succeeded":
                containers += self._containers(pod)
        real = {node.name for node in self.nodes}
        return Verdict(
            containers=tuple(one for one in containers if one.node in real),
            simulated=tuple(one for one in containers if one.node not in real),
            failures=failures,
            messages=tuple(messages),
            shared=tuple(self.shared),
        )

    def _containers(self, pod: Mapping[str, Any]) -> Iterable[ContainerRecord]:
        text = pod["metadata"].get("annotations", {}).get(names.PLAN)
        planned = {one.name: one.ids for one in decode_plan(text).containers} if text else {}
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        for container, is_init, size in _gpu_containers(pod):
            # It may have run and ended while this process had no processor.
            own = self._held.get((pod["spec"]["nodeName"], name, container), set())
            if len(own) > 1:
                self.shared.append(f"{name}/{container} changed hands: {sorted(own)}")
            yield ContainerRecord(
                node=pod["spec"]["nodeName"],
                pod=name,
                container=container,
                is_init=is_init,
                size=size,
                planned=tuple(sorted(planned.get(container, ()))),
                held=None if is_init else next(iter(own), None),
                seen=self._seen.get((uid, container), ()),
            )

    def _follow(self) -> None:
        """Keep every pod as it was last, over API servers that come and go."""
        version: str | None = None
        while not self._ends.is_set():
            try:
                version = self._list() if version is None else self._watch(version)
            except httpx.HTTPError:
                version = None
                self._ends.wait(_RETRY_S)

    def _list(self) -> str:
        """Take all pods; the version of the list."""
        listed = self.control_plane.client.get(PODS).raise_for_status().json()
        for pod in listed["items"]:
            self._take(pod)
        return str(listed["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str | None:
        """Take what changes for a while; the last version seen, none where a list is needed."""
        # Short, so that the end of the block is noticed.
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "2"}
        with self.control_plane.client.stream("GET", PODS, params=query) as answer:
            for line in answer.raise_for_status().iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return None
                if event["type"] in {"ADDED", "MODIFIED"}:
                    self._take(event["object"])
                version = event["object"]["metadata"]["resourceVersion"]
        return version

    def _take(self, pod: dict[str, Any]) -> None:
        if has_ended(pod) and pod["status"]["phase"] != "Failed":
            self._read_logs(pod)
        self.pods[pod["metadata"]["uid"]] = pod

    def _read_logs(self, pod: Mapping[str, Any]) -> None:
        """What each container of a pod that has ended said, once."""
        uid = pod["metadata"]["uid"]
        node = next((one for one in self.nodes if one.name == pod["spec"].get("nodeName")), None)
        if node is None:
            return
        for container, _, _ in _gpu_containers(pod):
            if (uid, container) not in self._seen:
                self._seen[uid, container] = _visible(node, pod, container)

    def _sample(self, node: KubeletNode) -> None:
        for number in count():
            if self._ends.wait(_SAMPLE_EVERY_S):
                return
            self._find_shared(node)
            for pod in list(self.pods.values()):
                if pod["spec"].get("nodeName") != node.name or has_ended(pod):
                    continue
                name = pod["metadata"]["name"]
                if number % _AGAIN_EVERY == 0 or not self._is_known(pod):
                    self._read_held(node, name)

    def _is_known(self, pod: Mapping[str, Any]) -> bool:
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        keeping = [container for container, is_init, _ in _gpu_containers(pod) if not is_init]
        return all((node, name, container) in self._held for container in keeping)

    def _read_held(self, node: KubeletNode, pod: str) -> None:
        try:
            held = held_by(node, pod)
        except grpc.RpcError:
            return  # it has gone; the kubelet is being restarted, or limits the rate
        for container, ids in held.items():
            self._held.setdefault((node.name, pod, container), set()).add(ids)

    def _find_shared(self, node: KubeletNode) -> None:
        try:
            entries = read_checkpoint(node.checkpoint.read_bytes())
        except FileNotFoundError:
            return  # nothing was ever given out
        owners: dict[str, str] = {}
        for entry in entries:
            pod = self.pods.get(entry.uid)
            if pod is None or (entry.container, True) in {one[:2] for one in _gpu_containers(pod)}:
                continue  # plain init containers hand on what they had
            owner = f"{pod['metadata']['name']}/{entry.container}"
            for one in entry.ids:
                if (other := owners.setdefault(one, owner)) != owner:
                    self.shared.append(f"{one} on {node.name}: {other} and {owner}")


def _visible(node: KubeletNode, pod: Mapping[str, Any], container: str) -> tuple[str, ...] | None:
    """The ids in the container's own environment; None where its log is gone.

    A kubelet that is started anew refuses a pod of which one container has ended, as long as no
    device plugin has come back, and removes its containers with their logs. Where all had ended
    well before, the pod becomes Succeeded even so.
    """
    try:
        if not node.has_log(pod, container):
            return None
        visible = node.given(pod, container)["environment"].get(VARIABLE, "")
    except (FileNotFoundError, TimeoutError):
        if node.has_log(pod, container):
            raise
        return None  # removed meanwhile
    return tuple(sorted(filter(None, visible.split(","))))


def _why(status: Mapping[str, Any]) -> str:
    """The reason of the pod, else of its containers; `NO_REASON` where none has failed."""
    if "reason" in status:
        return str(status["reason"])
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    ends = [one["state"]["terminated"] for one in statuses if "terminated" in one.get("state", {})]
    return ", ".join(one.get("reason", "?") for one in ends if one["exitCode"]) or NO_REASON


def _gpu_containers(pod: Mapping[str, Any]) -> Iterable[tuple[str, bool, int]]:
    """Containers with GPUs: name, whether it is an init container, how many."""
    for one in pod["spec"].get("initContainers") or ():
        size = int((one.get("resources", {}).get("limits") or {}).get(RESOURCE, 0))
        if size:
            yield one["name"], one.get("restartPolicy") != "Always", size
    for one in pod["spec"]["containers"]:
        size = int((one.get("resources", {}).get("limits") or {}).get(RESOURCE, 0))
        if size:
            yield one["name"], False, size
