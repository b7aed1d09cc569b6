"""`make cluster`: what it prints works, and ctrl-C ends all of it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.playground import play

pytestmark = pytest.mark.cluster

ENDS_WITHIN_S = 60
SOON_S = 300.0


def children(pid):
    """Process ids of a process' children."""
    return [
        int(one)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for one in (thread / "children").read_text(encoding="ascii").split()
    ]


def ends(pidfd):
    """Whether that process ends soon."""
    readable, _, _ = select.select([pidfd], [], [], ENDS_WITHIN_S)
    os.close(pidfd)
    return bool(readable)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("binaries")
def test_a_person_can_use_the_cluster_and_leave_it(root, number, code):
    """Every line that is printed is one to copy: kubeconfig, kubectl, the pod, the page."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "run", "--nodes", "2x dgx-1-v100, 1x 8x-l4"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if "ctrl-C" in line:
                break
        assert "3 nodes, 24 GPUs" in printed
        pidfds = [os.pidfd_open(pid) for pid in children(process.pid)]
        assert len(pidfds) == 6
        lines = [line for line in printed.splitlines() if re.match(r"\s+(export|kubectl) ", line)]
        (examples,) = (line for line in lines if "docs/examples" in line)
        lines.remove(examples)
        is_running = "kubectl wait --timeout=120s --for=jsonpath={.status.phase}=Running pod --all"
        folder = re.findall(r"logs +(\S+)", printed)[0]
        try:
            lines.insert(4, is_running)
            done = subprocess.run(
                ["bash", "-eu", "-c", "\n".join(lines)],
                capture_output=True,
                text=True,
                check=False,
                env={"HOME": folder, "PATH": os.environ["PATH"]},
            )
            assert done.returncode == 0, done.stderr
            assert re.fullmatch(r"extender: http://\S+ \(COTERIE_EXTENDER_URL\)\n", done.stderr)
            assert "dgx-1-v100" in done.stdout
            assert "nvidia.com/gpu" not in done.stdout
            page = re.findall(r"page +(\S+)", printed)[0]
            assert "<title>Coterie</title>" in httpx.get(page, timeout=60).text
            assert httpx.get(f"{page}../api/v1/cluster", timeout=60).json()["pods_placed"] == 1
        finally:
            process.send_signal(number)
            with ThreadPoolExecutor(len(pidfds)) as waiters:
                ended = list(waiters.map(ends, pidfds))
        assert all(ended)
        assert process.wait(ENDS_WITHIN_S) == code
        assert not Path(folder).exists()


def running(plane):
    """How many pods run, by the object that they are of."""
    pods = json.loads(plane.kubectl("get", "pods", "--output=json"))["items"]
    names = (pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running")
    return Counter(re.sub(r"(-[0-9]+)?(-[0-9a-z]{5,10}){0,2}$", "", name) for name in names)


def until(is_so):
    """Wait for it."""
    deadline = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_examples_get_their_pods_and_the_extender_comes_back(root, binaries, tmp_path):
    """A Deployment had none for ever, and ending the extender ended the cluster."""
    said: list[str] = []
    spec = parse_cluster("8x dgx-h100, 2x dgx-1-v100")
    with play(binaries, spec, tmp_path, said.append) as playground:
        plane = playground.control_plane
        plane.kubectl("apply", "-f", str(root / "docs" / "examples"))
        expected = {"serve": 2, "train-indexed": 4, "train-ranked": 2, "train": 1}
        until(lambda: running(plane) == expected)
        playground.extender.kill()
        while "is back" not in said[-1]:
            playground.tend_extender(said.append)
            time.sleep(0.2)
        assert playground.extender.get("/readyz").status_code == 200
        assert "comes back in 10 s" in said[-2]
