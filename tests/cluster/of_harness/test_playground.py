"""`make cluster`: what it prints works, and ctrl-C ends all of it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.cluster

ENDS_WITHIN_S = 60


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
        assert len(pidfds) == 5
        script = re.sub(r"alias kubectl=(\S+)", r'kubectl() { "\1" "$@"; }', printed)
        lines = [line for line in script.splitlines() if re.match(r"\s+(export|kubectl) ?", line)]
        is_running = "kubectl wait --timeout=120s --for=jsonpath={.status.phase}=Running pod --all"
        folder = re.findall(r"logs +(\S+)", printed)[0]
        try:
            lines.insert(3, is_running)
            done = subprocess.run(
                ["bash", "-eu", "-c", "\n".join(lines)],
                capture_output=True,
                text=True,
                check=False,
                env={"HOME": folder, "PATH": os.environ["PATH"]},
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert "dgx-1-v100" in done.stdout
            assert '"resource":"nvidia.com/gpu"' in done.stdout
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
