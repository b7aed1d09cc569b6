"""The two programs' images: size, content, and that all that they import is there.

That both programs run in them, read-only and as their users, is in tests/cluster/of_install.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from deploy.release import PROGRAMS
from tests.cluster.install.images import VERSION, engine, program_images
from tests.cluster.programs.debian import ProgramMissing

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="building images needs root on Linux"
    ),
]

MOST_COMPRESSED = 75 << 20
NOT_INSIDE = ("sh", "bash", "dash", "busybox", "pip", "pip3", "apt", "perl", "gcc", "cc")
"""Shells and what would bring further programs in."""
# The commands of a checkout, which matplotlib would draw for, come with the package `topology`.
IMPORT_EVERYTHING = """
import importlib, json, os, pathlib, pkgutil, shutil, sys
program, *names = sys.argv[1:]
for package in ("kube", program):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(found.name)
files = [getattr(one, "__file__", None) or "" for one in sys.modules.values()]
bare = [
    one
    for one in files
    if one.endswith(".py") and not os.path.exists(importlib.util.cache_from_source(one))
]
there = [one for one in names if shutil.which(one)]
print(json.dumps({"user": os.getuid(), "bare": bare, "there": there, "modules": len(files)}))
"""


@pytest.fixture(scope="module")
def archives():
    """The folder with both, built where the cache lacks them."""
    try:
        return program_images(lambda text: print(text, file=sys.stderr))  # noqa: T201 - for people
    except ProgramMissing as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(params=PROGRAMS)
def image(request, archives):
    """Each of them: its program, and how to run a command in it, as its user."""

    def buildah(*arguments):
        done = subprocess.run(
            [*engine(), *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    program = request.param
    archive = archives / f"coterie-{program}-{VERSION}.oci.tar"
    container = buildah("from", f"oci-archive:{archive}")
    yield (
        program,
        lambda *words: buildah("run", "--isolation=chroot", container, "--", *words),
        json.loads(buildah("inspect", container))["OCIv1"]["config"],
    )
    buildah("rm", container)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_image_is_small(archives, program):
    """Every node pulls it."""
    archive = archives / f"coterie-{program}-{VERSION}.oci.tar"
    assert archive.stat().st_size <= MOST_COMPRESSED


def test_all_that_a_program_imports_is_there_and_compiled(image):
    """What is left out of packages, and an import inside a function needs, would show in a pod.

    The root is read-only, so each start would compile what is not compiled; and whoever breaks in
    finds no shell.
    """
    program, run, _ = image
    shown = json.loads(
        run("/opt/coterie/bin/python", "-c", IMPORT_EVERYTHING, program, *NOT_INSIDE)
    )
    assert shown.pop("modules") > 200
    assert shown == {"user": {"extender": 65532, "plugin": 0}[program], "bare": [], "there": []}


def test_the_program_is_on_path_and_says_its_version(image):
    """`kubectl exec` finds it by its name, and a pod starts it without a command."""
    program, run, config = image
    name = f"coterie-{program}"
    assert (config["Entrypoint"], config["Cmd"]) == (
        [name],
        [{"extender": "serve"}.get(program, "run")],
    )
    assert run(name, "--version").split() == [name, VERSION]
