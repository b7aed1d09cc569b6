"""`coterie-plugin clean`: what it removes from a node, what it leaves and why, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from plugin import command_line as program
from plugin.container import CdiDevice, CdiDocument
from plugin.deviceplugin import Registration, ResourceServer
from plugin.nvidia.container.cdi import CDI_VENDOR
from plugin.nvidia.container.cdi_files import CdiFiles
from plugin.nvidia.container.written_files import RECORD
from tests import programs
from tests.cluster.control.processes import free_port
from tests.fake_kubelet import FakeKubelet
from tests.integration.extender.fake_api import FakeApi, fake_api
from tests.unit.plugin.node_values import GPU, app, node_pod
from tests.unit.plugin.offers import Obliging, offer

if TYPE_CHECKING:
    from pathlib import Path

NODE = "n1"
SPECIFICATION = f"{CDI_VENDOR}-gpu.json"
OURS = {"coterie.gpu/topology": "t", "coterie.gpu/devices": "d"}
DEADLINE_S = 60.0


@pytest.fixture
def root(tmp_path_factory):
    """A folder with a path short enough for unix sockets in it."""
    return tmp_path_factory.mktemp("k")


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """None of our settings in the environment."""
    for variable in ("NODE_NAME", "CONFIG_FILE", "KUBECONFIG"):
        monkeypatch.delenv(variable, raising=False)


@dataclass
class Node:
    """A node after its plugin has ended: kubelet, Node object, and what lies in its folders."""

    root: Path
    kubelet: FakeKubelet
    api: FakeApi
    kubeconfig: Path

    @property
    def cdi(self) -> Path:
        return self.root / "cdi"

    @property
    def annotations(self) -> dict[str, str]:
        """Those of the Node."""
        found: dict[str, str] = self.api.objects["nodes"][NODE]["metadata"]["annotations"]
        return found

    def write_specification(self) -> None:
        """As the plugin does."""
        device = CdiDevice("GPU-0", ("/dev/nvidia0",))
        CdiFiles(self.cdi).write([CdiDocument(CDI_VENDOR, "gpu", (device,))])

    def leave_socket(self, name: str = "coterie-nvidia.com_gpu-0a1b2c3d.sock") -> Path:
        """As a plugin that was killed."""
        path = self.kubelet.folder / name
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
        return path

    @property
    def flags(self) -> list[str]:
        return [
            f"--cdi-folder={self.cdi}",
            f"--kubelet-socket={self.kubelet.socket}",
            f"--pod-resources-socket={self.kubelet.pod_resources}",
            f"--kubeconfig={self.kubeconfig}",
            f"--node-name={NODE}",
        ]

    async def clean(self, *options: str) -> programs.Done:
        """Run the command with the settings of this node."""
        arguments = ("clean", *self.flags, *options)
        return await asyncio.to_thread(programs.called, program.main, *arguments)


@contextlib.asynccontextmanager
async def a_node(root):
    """A node whose Node object carries our annotations and one of others."""
    async with fake_api(root) as (api, kubeconfig):
        kubelet = FakeKubelet(root)
        await kubelet.start()
        api.put("nodes", {"metadata": {"name": NODE, "annotations": OURS | {"other": "o"}}})
        try:
            yield Node(root, kubelet, api, kubeconfig)
        finally:
            await kubelet.stop()


def test_everything_that_is_ours_is_removed(root):
    """And nothing else; a second time there is nothing to do, which is no failure."""

    async def go():
        async with a_node(root) as node:
            node.write_specification()
            others = [node.cdi / "nvidia.com-gpu.json", node.kubelet.folder / "nvidia-gpu.sock"]
            for path in others:
                path.write_text("{}")
            gone = [node.leave_socket(), node.leave_socket("coterie-nvidia.com_gpu-4e5f6071.sock")]
            gone += [node.cdi / SPECIFICATION, node.cdi / RECORD]
            done = await node.clean("--annotations")
            said = [f"removed {path}" for path in (*sorted(gone[:2]), *gone[2:])]
            said += [f"removed annotation {key} of node {NODE}" for key in OURS]
            assert (done.exit_code, done.stdout.splitlines(), done.stderr) == (0, said, "")
            assert [path for path in gone if path.exists()] == []
            assert [path.exists() for path in (*others, node.kubelet.socket)] == [True] * 3
            assert node.annotations == {"other": "o"}
            again = await node.clean("--annotations")
            assert (again.exit_code, again.output) == (0, "nothing to remove\n")

    asyncio.run(go())


def test_a_dry_run_changes_nothing(root):
    """It prints what would be removed."""

    async def go():
        async with a_node(root) as node:
            node.write_specification()
            left = node.leave_socket()
            done = await node.clean("--annotations", "--dry-run")
            assert done.exit_code == 0
            lines = done.stdout.splitlines()
            assert [line.startswith("would remove ") for line in lines] == [True] * 5
            assert left.exists()
            assert (node.cdi / SPECIFICATION).exists()
            assert node.annotations == OURS | {"other": "o"}

    asyncio.run(go())


def test_annotations_stay_where_they_are_not_named(root):
    """Then no API server is needed."""

    async def go():
        async with a_node(root) as node:
            done = await node.clean("--kubeconfig=/no-such")
            assert (done.exit_code, done.output) == (0, "nothing to remove\n")
            assert node.annotations.items() >= OURS.items()

    asyncio.run(go())


def test_what_another_program_wrote_is_left(root):
    """After the way back NVIDIA's plugin needs the file of that name; that is no failure."""

    async def go():
        async with a_node(root) as node:
            node.write_specification()
            (path := node.cdi / SPECIFICATION).write_text("{}")
            done = await node.clean()
            assert (done.exit_code, done.stdout.splitlines()) == (
                0,
                [
                    f"left {path}: it is not as this plugin wrote it, so another program's",
                    f"removed {node.cdi / RECORD}",
                ],
            )
            assert path.read_text() == "{}"

    asyncio.run(go())


def test_nothing_is_removed_below_a_plugin_that_serves(root):
    """Its containers need the specifications, and it would write the annotations again."""

    async def go():
        async with a_node(root) as node:
            node.write_specification()
            server = ResourceServer(
                offer(8, allocator=Obliging()), node.kubelet.folder, on_call=lambda _: None
            )
            async with server.serving() as serving:
                done = await node.clean("--annotations", "--force")
            said = (
                f"left {serving.path}: a node plugin serves there; end it first, "
                "nothing was removed"
            )
            assert (done.exit_code, done.output) == (1, f"{said}\n")
            assert (node.cdi / SPECIFICATION).exists()
            assert node.annotations.items() >= OURS.items()

    asyncio.run(go())


def test_specifications_stay_while_containers_may_need_them(root):
    """The kubelet starts a container again with the names of its first start."""

    async def go():
        async with a_node(root) as node:
            server = ResourceServer(
                offer(8, allocator=Obliging()), node.kubelet.folder, on_call=lambda _: None
            )
            registration = Registration([server], node.kubelet.socket, on_change=lambda _: None)
            serving = asyncio.create_task(registration.run())
            await node.kubelet.until_listed(GPU, 8)
            for n in range(7):
                await node.kubelet.admit(node_pod(f"p{n}", app("main", 1)))
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            node.write_specification()
            files = f"{node.cdi / SPECIFICATION}, {node.cdi / RECORD}"
            done = await node.clean("--annotations")
            assert done.exit_code == 1
            assert done.stdout.splitlines()[0] == (
                f"left {files}: containers of default/p0, default/p1, default/p2, default/p3, "
                "default/p4 and 2 more have devices, and need it when they are started again; "
                "--force removes it all the same"
            )
            assert (node.cdi / SPECIFICATION).exists()
            assert node.annotations == {"other": "o"}
            for n in range(7):
                node.kubelet.end(f"uid-p{n}")
            done = await node.clean()
            assert (done.exit_code, (node.cdi / SPECIFICATION).exists()) == (0, False)

    asyncio.run(go())


def test_a_kubelet_that_cannot_be_asked_is_no_permission(root):
    """Unless the administrator knows: a node without a kubelet is cleaned by force."""

    async def go():
        async with a_node(root) as node:
            node.write_specification()
            await node.kubelet.stop()
            done = await node.clean()
            assert done.exit_code == 1
            assert "whether containers that are started again need it is unknown" in done.stdout
            assert (await node.clean("--force")).exit_code == 0
            assert not (node.cdi / SPECIFICATION).exists()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (404, 0, "nothing to remove"),
        (403, 1, "left annotations of node n1: they cannot be removed: 403 Fault: PATCH"),
    ],
    ids=["a Node that is gone carries nothing", "a refusal is said"],
)
def test_what_the_api_server_says_of_the_node(root, status, code, said):
    """Files are cleaned all the same."""

    async def go():
        async with a_node(root) as node:
            node.api.faults["PATCH /api/v1/nodes"] = [status]
            done = await node.clean("--annotations")
            assert (done.exit_code, done.stdout.splitlines()[0][: len(said)]) == (code, said)

    asyncio.run(go())


def test_a_file_that_cannot_be_removed_is_said(root):
    """With the system's reason, and the others are removed."""

    async def go():
        async with a_node(root) as node:
            (inner := node.cdi / ".coterie-x" / "folder").mkdir(parents=True)
            (inner / "file").touch()
            left = node.leave_socket()
            done = await node.clean()
            assert done.exit_code == 1
            assert f"left {inner}: it cannot be removed: Directory not empty" in done.stdout
            assert not left.exists()

    asyncio.run(go())


def test_a_folder_that_cannot_be_read_is_said(root):
    """A file in its place."""

    async def go():
        async with a_node(root) as node:
            node.cdi.write_text("")
            done = await node.clean()
            said = f"left what is there: CDI specifications in {node.cdi} cannot be read: "
            assert (done.exit_code, done.output) == (1, f"{said}Not a directory\n")

    asyncio.run(go())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--annotations"], "setting node_name is missing"),
        (["--annotations", "--node-name=n1"], "setting kubeconfig"),
        (["--health-poll-s=0"], "setting health_poll_s"),
    ],
    ids=["node", "API server", "value"],
)
def test_wrong_settings(root, flags, said):
    """Exit code 2, and nothing was removed."""
    (root / f"{CDI_VENDOR}-gpu.json.tmp").touch()
    folders = [f"--cdi-folder={root}", f"--kubelet-socket={root}/kubelet.sock"]
    done = programs.called(program.main, "clean", *folders, "--kubeconfig=/no-such", *flags)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert (root / f"{CDI_VENDOR}-gpu.json.tmp").exists()


@pytest.mark.parametrize("is_clean", [True, False], ids=["stays when clean", "ends when not"])
def test_a_pod_of_a_daemonset_stays(root, is_clean):
    """It prints at once and ends on SIGTERM with 0; where it failed its pod is started again."""
    (root / "cdi").mkdir()
    (root / "cdi" / f"{SPECIFICATION}.tmp").touch()
    if not is_clean:
        (root / "cdi" / ".coterie-x" / "folder" / "inner").mkdir(parents=True)
    command = [sys.executable, "-m", "plugin", "clean", "--stay", f"--cdi-folder={root}/cdi"]
    command += [f"--kubelet-socket={root}/kubelet.sock", "--metrics-port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("removed ")
            if is_clean:
                assert process.poll() is None
                process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == (0 if is_clean else 1)
        finally:
            process.kill()


def answer_of(port, path):
    """Status and content of a route of the plugin, which listens before it does anything else."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_a_pod_is_ready_when_its_node_is_clean(root):
    """However long that takes: `kubectl rollout status` would end with nodes to be cleaned."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as api_server:
        api_server.settimeout(DEADLINE_S)
        cluster = {"server": f"http://127.0.0.1:{api_server.getsockname()[1]}"}
        kubeconfig = {
            "clusters": [{"name": "it", "cluster": cluster}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "users": [{"name": "it", "user": {}}],
            "current-context": "it",
        }
        (root / "kubeconfig").write_text(json.dumps(kubeconfig))
        command = [sys.executable, "-m", "plugin", "clean", "--annotations", "--stay"]
        command += [f"--kubeconfig={root}/kubeconfig", f"--cdi-folder={root}/cdi"]
        command += [f"--kubelet-socket={root}/kubelet.sock", "--node-name=n1"]
        command += ["--metrics-address=127.0.0.1", f"--metrics-port={port}"]
        with subprocess.Popen(command) as process:
            try:
                request, _ = api_server.accept()
                with request:
                    assert answer_of(port, "/livez")[0] == 200
                    assert answer_of(port, "/readyz") == (503, "the node is not clean yet\n")
                    request.recv(65536)
                    request.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                answer = answer_of(port, "/readyz")
                while answer[0] == 503:
                    answer = answer_of(port, "/readyz")
                assert answer == (200, "ok\n")
                process.send_signal(signal.SIGTERM)
                assert process.wait(DEADLINE_S) == 0
            finally:
                process.kill()
