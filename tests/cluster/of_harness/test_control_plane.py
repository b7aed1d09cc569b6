"""The test cluster itself: it starts, serves, survives kills, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.control.control_plane import CommandFailed, ControlPlane
from tests.cluster.control.processes import ProgramFailed
from tests.cluster.control.scheduler import plain_config

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

ENDS_WITHIN_S = 30
RUN_BY_ANOTHER = """
import sys, threading
from pathlib import Path
from tests.cluster.programs.build import binaries
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.scheduler import plain_config
from tests.cluster.programs.versions import chosen_minor
with ControlPlane(binaries(chosen_minor()), Path(sys.argv[1])) as plane:
    programs = (
        plane.etcd,
        plane.api_server,
        plane.start_scheduler(plain_config()),
        plane.start_controller_manager(),
    )
    print(*(program.pid for program in programs), flush=True)
    threading.Event().wait()
"""


def pod(name):
    """A pod that requests nothing special."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def create(plane, content):
    """Create an object with kubectl."""
    return plane.kubectl("create", "-f", "-", stdin=json.dumps(content))


def test_a_killed_api_server_comes_back_with_everything(control_plane):
    """Same port, same objects, for a client that was connected all the time too."""
    control_plane.kubectl("create", "configmap", "kept")
    control_plane.kill_api_server()
    with pytest.raises(CommandFailed, match="refused"):
        control_plane.kubectl("get", "configmap", "kept")
    control_plane.start_api_server()
    control_plane.kubectl("get", "configmap", "kept")
    assert control_plane.client.get("/readyz").text == "ok"


def test_a_program_that_does_not_start_says_why(control_plane):
    """A wrong scheduler configuration must not show itself as a timeout."""
    with pytest.raises(ProgramFailed, match=r"(?s)broken ended with code 1 .*nonsense"):
        control_plane.start_scheduler(plain_config() | {"nonsense": 1}, name="broken")


def await_ends(pids, act):
    """Whether all these processes end after `act`, as the kernel reports it, whoever's they are."""
    pidfds = [os.pidfd_open(pid) for pid in pids]

    def ends(pidfd):
        readable, _, _ = select.select([pidfd], [], [], ENDS_WITHIN_S)
        os.close(pidfd)
        return bool(readable)

    act()
    with ThreadPoolExecutor(len(pidfds)) as waiters:
        return all(waiters.map(ends, pidfds))


def test_leaving_the_block_ends_every_program_and_drops_the_data(binaries, tmp_path):
    """Logs stay, since they are what one reads after a failure."""
    plane = ControlPlane(binaries, tmp_path / "left")
    plane.start()
    programs = (plane.etcd, plane.api_server, plane.start_scheduler(plain_config()))
    data = plane.etcd.command[plane.etcd.command.index("--data-dir") + 1]
    assert os.path.isdir(data)  # noqa: PTH112 - a flag's text
    assert await_ends([program.pid for program in programs], plane.stop)
    assert not os.path.exists(data)  # noqa: PTH110 - a flag's text
    assert all(program.log.is_file() for program in programs)
    plane.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.usefixtures("binaries")
def test_nothing_is_left_when_the_test_process_ends(tmp_path, root, number):
    """Ctrl-C ends in order; after SIGKILL it is the kernel that ends what was started."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN_BY_ANOTHER, tmp_path / "other"],
        cwd=root,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # after SIGKILL only the test removes the data
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as other:
        assert other.stdout is not None
        pids = [int(pid) for pid in other.stdout.readline().split()]
        assert len(pids) == 4
        assert await_ends(pids, lambda: other.send_signal(number))
