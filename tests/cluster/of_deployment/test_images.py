"""The two programs' images as they are built: size, content, and that both start in them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy.release import ImageOrder, build_images, identify
from deploy.release.content import PROGRAMS
from deploy.release.oci import machine_architecture
from tests.cluster.of_deployment.unpacked_image import IMPORT_EVERYTHING, SITE, Unpacked, unpack
from tests.unit.plugin.test_wiring import KUBECONFIG

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="only root on Linux can change the root folder of a process",
    ),
]

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
MOST_COMPRESSED = 60 * MIB
MOST_UNPACKED = 180 * MIB
DEADLINE_S = 60.0
NOT_INSIDE = (
    *("sh", "bash", "dash", "busybox", "pip", "pip3", "uv", "apt", "dpkg", "perl", "mawk"),
    *("gcc", "cc", "ld", "as", "make"),
)
"""Shells, package managers, compilers and other interpreters."""
SHOW_RIGHTS = """
import errno, json, pathlib
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
try:
    pathlib.Path("/tmp/file").touch()
    written = "written"
except OSError as error:
    written = errno.errorcode[error.errno]
names = ("Uid", "CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs")
print(json.dumps({name: status[name].split()[0] for name in names} | {"write": written}))
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Both, for this machine's architecture."""
    folder = tmp_path_factory.mktemp("images")
    folder.parent.chmod(0o755)  # other users look into the roots
    folder.chmod(0o755)
    identity = identify(ROOT)
    order = ImageOrder(names=tuple(PROGRAMS), architectures=(machine_architecture(),))
    found = {}
    for built in build_images(order, identity, folder, print):
        (platform,) = built.platforms
        root = folder / built.name
        root.mkdir()
        config = unpack(built.file.path, root)
        found[built.name] = Unpacked(
            built.name, identity.version, root, config, platform.size, platform.unpacked
        )
    return found


@pytest.fixture(params=list(PROGRAMS))
def image(request, images):
    """Each of them."""
    return images[request.param]


def test_an_image_is_small(image):
    """Every node pulls it, and unpacks it onto a disk that others fill too."""
    assert image.compressed <= MOST_COMPRESSED
    assert image.unpacked <= MOST_UNPACKED


def test_an_image_has_two_programs(image):
    """Python and the program; whoever breaks in finds no shell, no pip and no compiler."""
    files = image.files()
    in_folders = {path for path in files if Path(path).parent.name in {"bin", "sbin"}}
    own = {f"opt/coterie/bin/coterie-{image.name}", "opt/coterie/bin/python"}
    assert in_folders == {"usr/bin/python3.13", *own}
    executable = {
        path
        for path, file in files.items()
        if not file.is_symlink()
        and file.is_file()
        and file.stat().st_mode & 0o111
        and file.read_bytes()[:4] == b"\x7fELF"
    }
    assert {path for path in executable if ".so" not in Path(path).name} == {"usr/bin/python3.13"}
    named = {path for path, file in files.items() if not file.is_dir()}
    assert {path for path in named if Path(path).name in NOT_INSIDE} == set()
    assert [path for path in files if path.startswith(f"{SITE}/pip")] == []
    assert [path for path, file in files.items() if file.lstat().st_mode & 0o6000] == []


def test_all_modules_are_compiled(image):
    """The root is read-only, so each start would compile what is not."""
    files = image.files()
    bare = [
        path
        for path, file in files.items()
        if path.startswith(("usr/lib/python3.13/", SITE))
        and path.endswith(".py")
        and not file.is_symlink()
        and f"{Path(path).parent}/__pycache__/{Path(path).stem}.cpython-313.pyc" not in files
    ]
    assert bare == []


def test_a_command_in_it_has_no_rights(image):
    """What the other tests run in is what a pod has: read-only, no capability."""
    shown = json.loads(image.run("/opt/coterie/bin/python", "-c", SHOW_RIGHTS).stdout)
    none = "0000000000000000"
    user = {"extender": "65532", "plugin": "0"}[image.name]
    assert shown == {
        "Uid": user,
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd"), none),
        "NoNewPrivs": "1",
        "write": "EROFS",
    }


def test_every_module_imports(image):
    """What pruning leaves out and an import inside a function needs would show in a running pod."""
    packages = PROGRAMS[image.name].packages
    done = image.run("/opt/coterie/bin/python", "-c", IMPORT_EVERYTHING, f"/{SITE}", *packages)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_program_is_on_path_and_says_its_version(image):
    """`kubectl exec` finds it by its name."""
    (entrypoint,) = image.config["Entrypoint"]
    assert entrypoint == f"coterie-{image.name}"
    done = image.run(entrypoint, "--version")
    assert (done.returncode, done.stdout.split()) == (0, [entrypoint, image.version])


@contextlib.contextmanager
def started(image, *flags, folder=None):
    """The program as its image starts it; yields process and port."""
    command = [*image.config["Entrypoint"], *image.config["Cmd"], *flags]
    process = subprocess.Popen(
        image.command(*command, folder=folder), stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("{") and json.loads(line)["event"] == "listening":
                break
        else:
            pytest.fail(f"{command} ended: {lines}")
        yield process, json.loads(lines[-1])["port"]
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def get(port, path):
    """Status and text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    with contextlib.closing(connection):
        return answer.status, answer.read().decode()


def ends(process):
    """Exit code after SIGTERM."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    return process.returncode


def test_the_extender_serves(images):
    """Over HTTP, from an embedded cluster, and says what was built."""
    image = images["extender"]
    with started(image, "--cluster", "1x dgx-1-v100", "--listen-port", "0") as (process, port):
        assert get(port, "/livez")[0] == 200
        page = get(port, "/metrics")[1]
        assert 'coterie_extender_build_info{revision="' in page
        assert ends(process) == 0


def test_the_plugin_serves(images, tmp_path):
    """It reads a machine and makes its sockets where it may write."""
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "kubeconfig").write_text(KUBECONFIG, encoding="utf-8")
    flags = {
        "node-name": "n1",
        "simulate": "dgx-h100",
        "kubeconfig": folder / "kubeconfig",
        "kubelet-socket": folder / "kubelet.sock",
        "pod-resources-socket": folder / "pod-resources.sock",
        "kubelet-port": 9,
        "metrics-address": "127.0.0.1",
        "metrics-port": 0,
    }
    options = [f"--{name}={value}" for name, value in flags.items()]
    with started(images["plugin"], *options, folder=folder) as (process, port):
        assert get(port, "/livez")[0] == 200
        assert 'coterie_plugin_build_info{revision="' in get(port, "/metrics")[1]
        assert ends(process) == 0


def test_the_plugin_discovers_a_machine(images):
    """A command of people's, by `kubectl exec`, which imports most of the plugin."""
    done = images["plugin"].run("coterie-plugin", "discover", "--simulate=dgx-h100")
    assert (done.returncode, done.stderr) == (0, "")
    assert "H100" in done.stdout
