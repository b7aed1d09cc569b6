"""Runs Jobs on a stage with real kubelets: in bursts, until all are complete.

Returns how long it took. What became of each pod is in the record (`loop_record`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.loop.loop_jobs import JOBS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from tests.cluster.control.control_plane import ControlPlane

__all__ = ["clear_jobs", "run_jobs", "start_job_controller"]

_CHECK_EVERY_S = 1.0
_WITHIN_S = 900.0


def start_job_controller(control_plane: ControlPlane) -> None:
    """Start what makes pods of Jobs, and removes those of Jobs that are gone."""
    control_plane.start_controller_manager(
        "job-controller",
        "garbage-collector-controller",
        flags=("--kube-api-qps=200", "--kube-api-burst=400"),
    )


def run_jobs(
    control_plane: ControlPlane,
    jobs: Sequence[Mapping[str, Any]],
    *,
    burst: int = 20,
    within_s: float = _WITHIN_S,
) -> float:
    """Create them in bursts, each when the one before is half done; returns when all are complete.

    Raises `TimeoutError` where they are not in time.
    """
    client, began = control_plane.client, time.monotonic()
    created = 0
    while True:
        done = _complete(client)
        if created < len(jobs) and created - len(done) <= burst // 2:
            for job in jobs[created : created + burst]:
                _checked(client.post(JOBS, json=dict(job)))
            created = min(created + burst, len(jobs))
        elif len(done) == len(jobs):
            return time.monotonic() - began
        if time.monotonic() > began + within_s:
            left = {job["metadata"]["name"] for job in jobs} - done
            msg = f"{len(left)} of {len(jobs)} Jobs after {within_s:g} s: {sorted(left)[:10]}"
            raise TimeoutError(msg)
        time.sleep(_CHECK_EVERY_S)


def clear_jobs(control_plane: ControlPlane) -> None:
    """Delete all Jobs and their pods, and wait until they are gone."""
    query = {"propagationPolicy": "Foreground"}
    _checked(control_plane.client.request("DELETE", JOBS, params=query))
    deadline = time.monotonic() + _WITHIN_S
    while _checked(control_plane.client.get(JOBS)).json()["items"]:
        if time.monotonic() > deadline:
            msg = "Jobs are still being deleted"
            raise TimeoutError(msg)
        time.sleep(_CHECK_EVERY_S)


def _complete(client: httpx.Client) -> set[str]:
    jobs = _checked(client.get(JOBS)).json()["items"]
    return {job["metadata"]["name"] for job in jobs if job.get("status", {}).get("succeeded")}


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        msg = f"{answer.request.url}: {answer.status_code}: {answer.text[:500]}"
        raise CommandFailed(msg)
    return answer
