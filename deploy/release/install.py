"""Run by deploy/Containerfile while an image is built: dependencies, then the project's packages.

Installs under /opt/coterie, a virtual environment over the base's Python, without a shell. Wheels
are those of the image's architecture, which need not be this machine's: nothing of them runs. It
imports the standard library only.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ENVIRONMENT = Path("/opt/coterie")
PACKAGES = ENVIRONMENT / "src"
WHEELS = {"amd64": "x86_64", "arm64": "aarch64"}
"""Names of architectures in wheels, by those that images have."""
LIBCS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
UNUSED = (
    "bin",
    # The Kubernetes client's APIs and their models, which it imports when they are asked for: the
    # programs use its transport and its configuration.
    *("kubernetes/client/api", "kubernetes/client/models/[!_]*"),
    *("kubernetes/aio/client/api", "kubernetes/aio/client/models/[!_]*"),
    # Tests, and what only compilers and type checkers read.
    *("networkx/**/tests", "numpy/**/tests", "numpy/f2py", "numpy/_core/include", "**/*.pyi"),
)
"""What the images leave out of distributions, two thirds of their size; the images' tests import
every module and start both programs."""
NOT_IMPORTED = re.compile(r"/(test|tests|idlelib|ensurepip|tkinter|turtledemo|pydoc_data)/")
LAUNCHER = "#!/opt/coterie/bin/python\nfrom {program}.__main__ import main\n\nmain()\n"


def dependencies(program: str) -> None:
    """Install /requirements.txt, and the program's start on PATH."""
    venv.create(ENVIRONMENT, symlinks=True)
    (site,) = ENVIRONMENT.glob("lib/python3.*/site-packages")
    venv.create("/pip", with_pip=True)
    architecture = WHEELS[os.environ["TARGETARCH"]]
    subprocess.run(  # noqa: S603 - pip, without a shell
        [
            *("/pip/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir"),
            *("--no-compile", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
            *(f"--platform={libc}_{architecture}" for libc in LIBCS),
            *("--target", site, "--requirement", "/requirements.txt"),
        ],
        check=True,
    )
    for pattern in UNUSED:
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (site / "coterie.pth").write_text(f"{PACKAGES}\n", encoding="utf-8")
    for path in ENVIRONMENT.glob("bin/[!p]*"):  # `activate`, for shells
        path.unlink()
    start = ENVIRONMENT / "bin" / f"coterie-{program}"
    start.write_text(LAUNCHER.format(program=program), encoding="utf-8")
    start.chmod(0o755)
    compiled(Path(sysconfig.get_path("stdlib")))
    compiled(site)


def packages() -> None:
    """Compile the packages, and say their version where Python looks for a distribution's."""
    metadata = PACKAGES / "coterie.dist-info" / "METADATA"
    metadata.parent.mkdir()
    version = os.environ["VERSION"]
    metadata.write_text(f"Metadata-Version: 2.1\nName: coterie\nVersion: {version}\n")
    compiled(PACKAGES)


def compiled(folder: Path) -> None:
    """Write the byte code of every module, never to be checked against its source.

    It lies apart from the sources (PYTHONPYCACHEPREFIX): those of the base are in another layer.
    """
    sys.pycache_prefix = str(ENVIRONMENT / "bytecode")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(folder, 20, quiet=1, invalidation_mode=mode, rx=NOT_IMPORTED):
        sys.exit(f"modules in {folder} do not compile")


if __name__ == "__main__":
    dependencies(sys.argv[2]) if sys.argv[1] == "dependencies" else packages()
