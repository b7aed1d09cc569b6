"""deploy/Containerfile makes images whose programs start: built by buildah, without podman.

buildah and mmdebstrap are Debian's packages, unpacked and not installed. The base is Debian with
Python and pip, as small as mmdebstrap makes it, in the place of the one from a registry.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.release.content import PROGRAMS
from deploy.release.content.debian_lock import RELEASE, debian_sources
from tests.cluster.of_deployment.unpacked_image import IMPORT_EVERYTHING
from tests.cluster.programs.debian import unpacked_packages

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="only root on Linux can change the root folder of a process",
    ),
]

ROOT = Path(__file__).resolve().parents[3]
CERTIFICATES = Path("/etc/ssl/certs")
TOOLS = (
    *("buildah", "golang-github-containers-common", "golang-github-containers-image"),
    *("libgpgme11", "libassuan0", "libdevmapper1.02.1", "libsubid4", "mmdebstrap"),
)
BASE = "localhost/python-base:3.13"
VERSION = "1.2.3"
BUILT_WITHIN_S = 900.0
# The helper of `--isolation chroot` gets a clean environment: its libraries are found by a cache of
# the loader's, which is this one's in this mount namespace alone.
WITH_LIBRARIES = """
PATH="$PATH:/usr/sbin:/sbin"
ldconfig -C "$0/ld.so.cache" -f /etc/ld.so.conf "$1"/usr/lib/*-linux-gnu "$1"/lib/*-linux-gnu
mount --bind "$0/ld.so.cache" /etc/ld.so.cache
export STORAGE_DRIVER=vfs TMPDIR="$0"
buildah="$1/usr/bin/buildah"
shift
exec "$buildah" --root "$(dirname "$TMPDIR")/store" --runroot "$TMPDIR" "$@"
"""


class Buildah:
    """buildah with a store of its own; `tools` stands for `/` of its packages."""

    def __init__(self, tools, folder):
        self.policy = tools / "etc/containers/policy.json"
        (own := folder / "own").mkdir()
        self._command = ["unshare", "--mount", "sh", "-euc", WITH_LIBRARIES, str(own), str(tools)]

    def run(self, *arguments):
        """Its output, which is shown where it fails."""
        done = subprocess.run(
            [*self._command, *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILT_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"buildah {arguments}:\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    """With the base in its store."""
    folder = tmp_path_factory.mktemp("buildah")
    tools = unpacked_packages("buildah", TOOLS, print)
    base = folder / "base.tar"
    packages = "--include=python3,python3-venv,python-is-python3,ca-certificates"
    mirror = debian_sources()[0][0]
    program = str(tools / "usr/bin/mmdebstrap")
    command = [program, "--mode=root", "--variant=minbase", packages, RELEASE, str(base), mirror]
    subprocess.run(command, check=True, timeout=BUILT_WITHIN_S)
    buildah = Buildah(tools, folder)
    container = buildah.run("from", "scratch")
    buildah.run("add", "--quiet", container, base, "/")
    buildah.run("commit", "--quiet", "--signature-policy", buildah.policy, container, BASE)
    yield buildah
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_image_is_built_and_its_program_runs(buildah, name):
    """With all that it imports, as its user, and under its version."""
    buildah.run(
        *("bud", "--isolation", "chroot", "--layers", "--pull-never"),
        *("--signature-policy", buildah.policy, "--target", name, "--tag", f"localhost/{name}"),
        *("--build-arg", f"PYTHON={BASE}", "--build-arg", f"VERSION={VERSION}"),
        *("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--file", "deploy/Containerfile", "."),
    )
    policy = ("--signature-policy", buildah.policy)
    container = buildah.run("from", "--pull-never", *policy, f"localhost/{name}")

    def run(*command):
        return buildah.run("run", "--isolation", "chroot", container, "--", *command)

    shape = "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}"
    command = buildah.run("inspect", "--type", "image", "--format", shape, f"localhost/{name}")
    assert command == f"[coterie-{name}] [{'serve' if name == 'extender' else 'run'}]"
    assert run(f"coterie-{name}", "--version") == f"coterie-{name} {VERSION}"
    assert run("id", "-u") == {"extender": "65532", "plugin": "0"}[name]
    # `topology` whole is there too, with commands of a checkout that need more.
    script = ("/opt/coterie/bin/python", "-c", IMPORT_EVERYTHING, "/opt/coterie/src")
    assert run(*script, "kube", name) == ""
