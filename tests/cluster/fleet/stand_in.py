"""The stand-in for kubelets and node plugins: pods that were bound run, end and go.

A bound pod becomes Running with the devices of its plan in
`status.containerStatuses[].allocatedResourcesStatus` (as the kubelet of Kubernetes 1.36 writes
them), Succeeded after as many seconds as its annotation `stand-in/runs-s` says (for ever without
one), and is then deleted as a Job controller would do. A pod under deletion is removed, since no
kubelet is there to confirm it. It never chooses: what it reports is what was planned.

While the API server is down it waits; then it lists again and goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.cluster.control.api import ApiError, open_api, patiently
from topology.annotations import encode_devices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.control.api import Api
    from tests.cluster.fleet.gangs import Gangs
    from topology.annotations import DevicesReport

__all__ = ["RUNS_S", "StandIn", "set_devices_report"]

RUNS_S = "stand-in/runs-s"
"""Annotation of a pod: seconds between Running and Succeeded."""
_PLAN = "coterie.gpu/plan"
_DEVICES = "coterie.gpu/devices"
_BOUND = "spec.nodeName!="
_RELIST_PAUSE_S = 0.2
_WATCH_S = "60"


class StandIn:
    """Plays all nodes of a cluster while it is entered.

    `reports_devices`: whether pod.status names the ids (off: a kubelet before 1.36). `keeps`:
    whether ended pods stay, as those of a finished Job do. `gangs`: the members of a group end
    with the others only.
    """

    def __init__(
        self,
        api: Api,
        *,
        reports_devices: bool = True,
        keeps: bool = False,
        gangs: Gangs | None = None,
    ) -> None:
        self._api = api
        self._gangs = gangs
        self._reports_devices = reports_devices
        self._keeps = keeps
        self._pods: dict[str, Mapping[str, Any]] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._removals: dict[str, asyncio.Task[None]] = {}
        self._main: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._main = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._lives.values(), *self._removals.values()]
        tasks += [self._main] if self._main is not None else []
        for task in tasks:
            task.cancel()
        endings = await asyncio.gather(*tasks, return_exceptions=True)
        for ending in endings:
            if isinstance(ending, Exception):
                raise ending

    async def serve(self) -> None:
        """Play until cancelled."""
        if self._main is not None:
            await self._main

    async def _follow(self) -> None:
        while True:
            with suppress(ApiError):  # every fault ends in a new list; nothing else is answered
                listed = await self._api.get("/api/v1/pods", fieldSelector=_BOUND)
                pods = {pod["metadata"]["uid"]: pod for pod in listed.get("items") or ()}
                for uid in self._lives.keys() - pods.keys():
                    self._forget(self._pods[uid])
                for pod in pods.values():
                    self._see(pod)
                await self._watch(listed["metadata"]["resourceVersion"])
            await asyncio.sleep(_RELIST_PAUSE_S)

    async def _watch(self, version: str) -> None:
        query = {"fieldSelector": _BOUND, "resourceVersion": version, "timeoutSeconds": _WATCH_S}
        async with aclosing(self._api.watch("/api/v1/pods", **query)) as events:
            async for kind, pod in events:
                if kind in {"ADDED", "MODIFIED"}:
                    self._see(pod)
                elif kind == "DELETED":
                    self._forget(pod)
                elif kind == "ERROR":
                    return

    def _see(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            if uid not in self._removals:
                self._forget(pod)
                self._removals[uid] = asyncio.create_task(self._remove(pod))
        elif uid not in self._lives:
            self._pods[uid] = pod
            self._lives[uid] = asyncio.create_task(self._live(pod))

    def _forget(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        task = self._lives.pop(uid, None)
        if task is not None:
            task.cancel()
        if self._gangs is not None:
            self._gangs.leave(pod)

    async def _live(self, pod: Mapping[str, Any]) -> None:
        """Run the pod from where it stands to its end."""
        phase = pod["status"].get("phase", "Pending")
        if phase == "Pending":
            await self._say(pod, _running(pod, reports_devices=self._reports_devices))
        runs_s = (pod["metadata"].get("annotations") or {}).get(RUNS_S)
        if runs_s is None:
            return
        if phase in {"Pending", "Running"}:
            if self._gangs is not None:
                await self._gangs.run(pod)
            await asyncio.sleep(float(runs_s))
            if self._gangs is not None:
                await self._gangs.await_all(pod)
            await self._say(pod, {"phase": "Succeeded"})
            if self._gangs is not None:
                self._gangs.end(pod)
        if not self._keeps:
            await self._remove(pod)

    async def _say(self, pod: Mapping[str, Any], status: Mapping[str, object]) -> None:
        """Write the status, unless the pod is gone or another one has its name."""
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await patiently(
                lambda: self._api.patch(_path(pod) + "/status", body, is_strategic=True)
            )
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    async def _remove(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        await patiently(lambda: self._api.delete(_path(pod), grace_s=0, uid=uid))
        self._removals.pop(uid, None)


async def set_devices_report(api: Api, node: str, report: DevicesReport) -> None:
    """Publish `coterie.gpu/devices` as the node's plugin would."""
    text = encode_devices(report)
    await api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {_DEVICES: text}}})


def _path(pod: Mapping[str, Any]) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _running(pod: Mapping[str, Any], *, reports_devices: bool) -> dict[str, object]:
    planned = _planned(pod) if reports_devices else {}
    inits = pod["spec"].get("initContainers", [])
    return {
        "phase": "Running",
        "startTime": _now(),
        "conditions": [_condition("Ready"), _condition("ContainersReady")],
        "containerStatuses": [
            _container(one["name"], planned.get(one["name"])) for one in pod["spec"]["containers"]
        ],
        "initContainerStatuses": [_container(one["name"], None) for one in inits],
    }


def _planned(pod: Mapping[str, Any]) -> dict[str, tuple[str, list[str]]]:
    text = (pod["metadata"].get("annotations") or {}).get(_PLAN)
    containers = json.loads(text)["containers"] if text else []
    return {one["name"]: (one["resource"], one["ids"]) for one in containers}


def _container(name: str, devices: tuple[str, list[str]] | None) -> dict[str, object]:
    status: dict[str, object] = {
        "name": name,
        "image": "stand-in",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": _now()}},
    }
    if devices is not None:
        resource, ids = devices
        held = [{"resourceID": one, "health": "Healthy"} for one in ids]
        status["allocatedResourcesStatus"] = [{"name": resource, "resources": held}]
    return status


def _condition(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": _now()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


async def _main(kubeconfig: Path) -> None:
    async with open_api(kubeconfig) as api, StandIn(api) as stand_in:
        await stand_in.serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args().kubeconfig))
