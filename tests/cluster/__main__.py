"""The test clusters' command line: `build` their programs, `run` a cluster, `test` on clusters.

`faults` runs random groups on one while its programs die, as large as wanted.

Exit codes: 0 done, or ended by ctrl-C; 1 something did not build, did not start or ended by itself,
or a test failed; 2 bad arguments; 143 ended by SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from extender.embedded import parse_cluster
from extender.errors import ExtenderError
from tests.cluster.control.control_plane import CommandFailed, ControlPlane
from tests.cluster.control.processes import ProgramFailed
from tests.cluster.fleet.group_run import Run, run_groups
from tests.cluster.fleet.playground import play
from tests.cluster.lanes import LANES, stamp_of
from tests.cluster.programs.build import (
    BuildFailed,
    binaries,
    cni_plugins,
    coredns,
    helm,
    node_programs,
    prometheus,
    promtool,
)
from tests.cluster.programs.operator_crds import CrdsMissing, operator_crds
from tests.cluster.programs.toolchain import ToolchainMissing
from tests.cluster.programs.versions import (
    DEFAULT_MINOR,
    MINORS,
    VARIABLE,
    UnknownVersion,
    chosen_helm,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

T = TypeVar("T")
_CHECK_EVERY_S = 1.0
_GROUPS_PER_KILL = 13
"""Of each program: as in the test of every change, which has 40 groups and 3 kills."""
_WORKERS = min(2 * (os.cpu_count() or 1), 8)
"""Most tests wait for kubelets and schedulers most of the time."""

cli = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)

Kubernetes = Annotated[
    str, typer.Option(envvar=VARIABLE, help=f"Kubernetes minor: {', '.join(MINORS)}.")
]


@cli.command()
def build(*, kubernetes: Kubernetes = DEFAULT_MINOR) -> None:
    """Build what is not in the cache yet: etcd, Kubernetes, Prometheus, Helm; prints where."""
    built = _made(lambda: binaries(kubernetes, _say))
    around = _made(lambda: node_programs(_say))
    around_pods = cni_plugins, coredns
    makers = *around_pods, promtool, prometheus, operator_crds, partial(helm, chosen_helm())
    tools = [_made(partial(make, _say)) for make in makers]
    for path in (built.etcd, built.kube_apiserver, built.kubectl, around.containerd, *tools):
        typer.echo(path)


@cli.command("test")
def run_tests(
    folders: Annotated[list[str] | None, typer.Argument(help="Tests to run in any case.")] = None,
    *,
    again: Annotated[bool, typer.Option(help="Lanes that passed unchanged, too.")] = False,
    workers: Annotated[int, typer.Option(help="0: all in this process.")] = _WORKERS,
    kubernetes: Kubernetes = DEFAULT_MINOR,
) -> None:
    """Run tests on the cluster side by side, with the lanes of which anything has changed."""
    stamps = {lane: stamp_of(lane, kubernetes) for lane in LANES}
    chosen = [lane for lane, stamp in stamps.items() if again or not stamp.exists()]
    for lane in stamps.keys() - set(chosen):
        typer.echo(f"{lane}: passed with the same content, skipped (make test-nightly runs it)")
    paths = [*(folders or ()), *(f"tests/cluster/{lane}" for lane in chosen)]
    if not paths:
        return
    command = [
        *(sys.executable, "-m", "pytest", "-m", "cluster and not alone", "-n", str(workers)),
        *("--dist", "loadfile", "--no-loadscope-reorder", *paths),
    ]
    environment = os.environ | {VARIABLE: kubernetes}
    if code := subprocess.run(command, check=False, env=environment).returncode:
        sys.exit(code)
    for lane in chosen:
        stamps[lane].parent.mkdir(parents=True, exist_ok=True)
        stamps[lane].touch()


@cli.command()
def run(
    *,
    nodes: Annotated[str, typer.Option(help="Machines and counts.")] = "8x dgx-h100",
    kubernetes: Kubernetes = DEFAULT_MINOR,
) -> None:
    """Run a cluster with the extender until ctrl-C."""
    try:
        spec = parse_cluster(nodes)
    except ExtenderError as error:
        _fail(str(error), 2)
    built = _made(lambda: binaries(kubernetes, _say))
    with tempfile.TemporaryDirectory(prefix="coterie-cluster-") as folder:
        try:
            with play(built, spec, Path(folder), _say) as playground:
                typer.echo(playground.instructions())
                wait = threading.Event()
                while not wait.wait(_CHECK_EVERY_S):
                    playground.tend_extender(_say)
                    for program in playground.programs():
                        if not program.is_running:
                            _fail(f"{program.name} has ended:\n{program.log_tail()}", 1)
        except (CommandFailed, ProgramFailed) as error:
            _fail(str(error), 1)
        finally:
            _say("ending the cluster")


@cli.command()
def faults(
    *,
    groups: Annotated[int, typer.Option(min=1, help="How many groups.")] = 200,
    seed: Annotated[int, typer.Option(help="Of groups, single pods and faults.")] = 1,
    schedulers: Annotated[int, typer.Option(min=1, help="kube-schedulers.")] = 2,
    pace: Annotated[float, typer.Option(min=0.01, help="Groups made in a second.")] = 0.5,
    logs: Annotated[Path | None, typer.Option(help="Folder that keeps the logs.")] = None,
    kubernetes: Kubernetes = DEFAULT_MINOR,
) -> None:
    """Run random groups while API server, schedulers and extenders are killed; minutes."""
    chosen = Run(groups, seed, schedulers, max(1, groups // _GROUPS_PER_KILL), pace)
    built = _made(lambda: binaries(kubernetes, _say))
    with tempfile.TemporaryDirectory(prefix="coterie-faults-") as temporary:
        folder = logs or Path(temporary)
        with ControlPlane(built, folder) as plane:
            outcome = run_groups(plane, chosen)
    typer.echo(outcome.summary())
    if broken := outcome.broken():
        _fail("\n".join(broken), 1)


def main() -> None:
    """Run the command line; SIGTERM ends it as ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        cli(standalone_mode=False)
    except KeyboardInterrupt:
        sys.exit(0)


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except (BuildFailed, CrdsMissing, ToolchainMissing, UnknownVersion) as error:
        _fail(str(error), 1)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _fail(message: str, code: int) -> NoReturn:
    _say(message)
    sys.exit(code)


if __name__ == "__main__":
    main()
