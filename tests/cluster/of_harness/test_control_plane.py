"""The test cluster itself: it starts, serves, survives kills, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.control.control_plane import CommandFailed, ControlPlane
from tests.cluster.control.manifests import await_so
from tests.cluster.control.processes import ProgramFailed
from tests.cluster.control.scheduler import plain_config
from tests.cluster.programs.build import binaries as built
from tests.cluster.programs.versions import chosen_minor

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


def node(name):
    """A Node with room for pods, as the API takes it."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


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


def stored(plane, key):
    """What etcd itself has under a key, and at which revision it was written."""
    query = {"key": base64.b64encode(key.encode()).decode()}
    answer = plane.client.post(f"{plane.etcd_url}/v3/kv/range", json=query)
    (found,) = answer.json()["kvs"]
    return json.loads(base64.b64decode(found["value"])), int(found["mod_revision"])


def test_kubectl_and_the_server_are_of_the_chosen_version(control_plane):
    """A tier that quietly ran on another version would prove the wrong thing."""
    output = json.loads(control_plane.kubectl("version", "--output", "json"))
    versions = {output[side]["gitVersion"] for side in ("clientVersion", "serverVersion")}
    assert versions == {control_plane.binaries.version}
    assert control_plane.binaries.version.startswith(f"v{chosen_minor()}.")


def test_users_have_no_rights_but_their_own(control_plane):
    """Least privilege can only be proven where it is enforced."""
    jane = control_plane.kubeconfig("jane", "readers")
    output = control_plane.kubectl("auth", "whoami", "--output", "json", kubeconfig=jane)
    user = json.loads(output)["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("jane", ["readers", "system:authenticated"])
    with pytest.raises(CommandFailed, match=r'User "jane" cannot list resource "nodes"'):
        control_plane.kubectl("get", "nodes", kubeconfig=jane)


def test_service_accounts_get_tokens(control_plane):
    """Coterie's own identity in a cluster is a service account."""
    control_plane.kubectl("create", "serviceaccount", "agent")
    agent = control_plane.service_account("default", "agent")
    output = control_plane.kubectl("auth", "whoami", "--output", "json", kubeconfig=agent)
    username = json.loads(output)["status"]["userInfo"]["username"]
    assert username == "system:serviceaccount:default:agent"
    with pytest.raises(CommandFailed, match="404"):
        control_plane.service_account("default", "missing")


def test_admission_policies_of_both_kinds_are_served(control_plane):
    """The manifests use them, and not every version has them on by default."""
    group = ("api-resources", "--api-group=admissionregistration.k8s.io", "--output=name")
    served = control_plane.kubectl(*group)
    assert "validatingadmissionpolicies." in served
    assert "mutatingadmissionpolicies." in served


def test_etcd_holds_readable_objects_and_their_revisions(control_plane):
    """The checker reads etcd, not the word of anything that is under test."""
    control_plane.kubectl("create", "configmap", "note", "--from-literal=text=first")
    content, revision = stored(control_plane, "/registry/configmaps/default/note")
    assert content["data"] == {"text": "first"}
    shown = control_plane.kubectl(
        *("get", "configmap", "note", "--output=jsonpath={.metadata.resourceVersion}")
    )
    assert revision == int(shown)


def test_the_real_scheduler_places_a_pod(control_plane):
    """On a node that the API made; killed and started again it goes on."""
    create(control_plane, node("machine"))
    scheduler = control_plane.start_scheduler(plain_config())
    create(control_plane, pod("before"))
    is_bound = ("wait", "--timeout=120s", "--for=jsonpath={.spec.nodeName}=machine")
    control_plane.kubectl(*is_bound, "pod/before")
    attempts = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1'
    await_so(lambda: attempts in scheduler.metrics(), "the attempt in its metrics")
    scheduler.kill()
    create(control_plane, pod("after"))
    scheduler.start()
    control_plane.kubectl(*is_bound, "pod/after")


def test_controllers_run_on_demand(control_plane):
    """Namespaces get their default account; nodes without a kubelet are left alone."""
    control_plane.start_controller_manager()
    control_plane.kubectl("create", "namespace", "team")
    control_plane.kubectl(
        *("wait", "--timeout=120s", "--for=create", "--namespace=team", "serviceaccount/default")
    )


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


def test_a_warm_start_builds_nothing(binaries, tmp_path):
    """From the command to a ready API server and scheduler; how long that took is printed."""
    messages: list[str] = []
    began = time.monotonic()
    with ControlPlane(built(binaries.minor, messages.append), tmp_path / "warm") as plane:
        plane.start_scheduler(plain_config())
        print(f"Ready after {time.monotonic() - began:.1f} s")  # noqa: T201 - a figure
    assert messages == []


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
