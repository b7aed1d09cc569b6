"""The images for the architecture that this machine is not: their programs run, in an emulator.

The emulator is Debian's static one for user programs; no handler for foreign binaries is registered
with the kernel, so each command names it, and what would start a second program is not tried.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from deploy.release import ImageOrder, build_images, identify
from deploy.release.content import PROGRAMS
from deploy.release.images import IMAGES
from deploy.release.oci import ARCHITECTURES, machine_architecture
from tests.cluster.of_deployment.unpacked_image import IMPORT_EVERYTHING, SITE, Unpacked, unpack
from tests.cluster.programs.debian import unpacked_packages

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="only root on Linux can change the root folder of a process",
    ),
]

ROOT = Path(__file__).resolve().parents[3]
EMULATED_WITHIN_S = 600.0
THEN_ITS_VERSION = """
import runpy
sys.argv = ["{program}", "--version"]
runpy.run_path("{program}", run_name="__main__")
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """All three by name, unpacked, with the emulator in each root."""
    (other,) = [one for one in ARCHITECTURES if one != machine_architecture()]
    name = f"qemu-{other.machine}-static"
    emulator = unpacked_packages("qemu-user-static", ["qemu-user-static"], print) / "usr/bin" / name
    folder = tmp_path_factory.mktemp("images")
    folder.parent.chmod(0o755)  # other users look into the roots
    folder.chmod(0o755)
    identity = identify(ROOT)
    order = ImageOrder(names=IMAGES, architectures=(other,))
    found = {}
    for built in build_images(order, identity, folder, print):
        (platform,) = built.platforms
        root = folder / built.name
        root.mkdir()
        config = unpack(built.file.path, root)
        shutil.copy(emulator, root / name)
        found[built.name] = Unpacked(
            name=built.name,
            version=identity.version,
            root=root,
            config=config,
            compressed=platform.size,
            unpacked=platform.unpacked,
            emulator=(f"/{name}",),
        )
    yield other, found
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_module_imports_and_the_program_says_its_version(images, name):
    """Wheels of another architecture are other builds: one that lacks a library shows here."""
    image = images[1][name]
    script = IMPORT_EVERYTHING + THEN_ITS_VERSION.format(program=f"/opt/coterie/bin/coterie-{name}")
    done = image.run(
        *("/opt/coterie/bin/python", "-c", script, f"/{SITE}", *PROGRAMS[name].packages),
        timeout_s=EMULATED_WITHIN_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [f"coterie-{name}", image.version]


def test_python_is_of_that_architecture(images):
    """Else the tests above ran this machine's programs."""
    other, found = images
    said = "import platform; print(platform.machine())"
    for name in PROGRAMS:
        done = found[name].run("/usr/bin/python3.13", "-c", said)
        assert done.stdout.strip() == other.machine


def test_kube_scheduler_says_its_version(images):
    """Built here for another machine."""
    image = images[1]["kube-scheduler"]
    (entrypoint,) = image.config["Entrypoint"]
    done = image.run(f"/usr/local/bin/{Path(entrypoint).name}", "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "Kubernetes"), done.stderr
