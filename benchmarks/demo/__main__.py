"""`make demo`: the same pods on the same machines, placed by Coterie and by its rivals.

Starts the extender as a process with an embedded cluster, speaks kube-scheduler's requests to it
over HTTP, places the same pods by the rivals, prints a table and writes one HTML report; with
`--serve` pods then come and go before the extender's page until ctrl-C. Exit codes: 0 done, also
when ctrl-C or SIGTERM ended `--serve`, 1 something failed (the message says what), 2 usage, 130
ctrl-C before.
"""

from __future__ import annotations

import importlib.metadata
import json
import signal
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.demo.examples import pick_examples
from benchmarks.demo.figures import compute_figures, span
from benchmarks.demo.fleet import FLEET, lay_out_fleet, list_products
from benchmarks.demo.gains import gain_by_machine, match_pods, say_result
from benchmarks.demo.groups.comparison import compare_jobs
from benchmarks.demo.groups.outcome import say_jobs
from benchmarks.demo.groups.pool import lay_out_pool, write_cluster
from benchmarks.demo.groups.table import job_table
from benchmarks.demo.groups.traffic import JobTraffic
from benchmarks.demo.kube_scheduler import HttpExtender
from benchmarks.demo.pods import NAMESPACE, draw_pods
from benchmarks.demo.policies import ExtenderPolicy, MostAllocatedPolicy, RivalOnCoterieNode
from benchmarks.demo.process import run_extender
from benchmarks.demo.report import Demo, count_drawings, render_report
from benchmarks.demo.serve import Traffic, come_and_go, until_signal
from benchmarks.demo.tables import example_table, gain_table, policy_table, span_table
from benchmarks.demo.timeline import play
from benchmarks.errors import BenchmarkError
from benchmarks.report import read_environment
from benchmarks.rivals import NVIDIA_BEST_EFFORT, PLAIN_KUBELET
from extender.config import load_settings
from extender.errors import ExtenderError
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.policies import Policy
    from benchmarks.demo.timeline import Run

DEFAULT_OUT = Path("build/demo")
LOG = "extender.log"
N_POLICIES = 4
EXAMPLE_POD = {
    "metadata": {"name": "mine", "namespace": NAMESPACE, "uid": "mine"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {DEFAULT_RESOURCE: "4"}}}]},
}
"""The pod of the `explain` command that `--serve` prints."""
SEE_LIVE = "page: make demo SERVE=1 shows the same cluster live, with pods that come and go"
LEAST_WIDTH = 100
"""Columns of the tables where there is no terminal."""


def main(  # noqa: PLR0913 - one flag for each choice
    *,
    seed: Annotated[int, typer.Option(help="Seed of the pods and of every draw.")] = 0,
    pods: Annotated[int, typer.Option(min=2, max=5000, help="Number of pods.")] = 120,
    out: Annotated[Path, typer.Option(help="Folder for the report and the log.")] = DEFAULT_OUT,
    further: Annotated[
        int,
        typer.Option(min=0, max=100, help="Further mixes, from the next seeds, in figures only."),
    ] = 5,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then show the page, live, with pods that come and go.")
    ] = False,
    serve_for: Annotated[
        float | None, typer.Option(min=0, help="End `--serve` after so many seconds.")
    ] = None,
) -> None:
    """Place pods on an embedded cluster by Coterie and by its rivals; write an HTML report."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=LEAST_WIDTH)
    try:
        out.mkdir(parents=True, exist_ok=True)
        cluster = str(write_cluster(out))
        with _ending_on_sigterm(), run_extender(cluster, port=port, log=out / LOG) as client:
            console.print(f"extender is ready at {client.base_url}, its log is {out / LOG}")
            demo = _run(client, console, seeds=range(seed, seed + further + 1), n_pods=pods)
            _print(demo, console)
            path = _write(demo, console, out)
            console.print(say_result(demo.matched, demo.nodes, demo.spans), highlight=False)
            console.print(f"report: [bold]{path.resolve().as_uri()}[/bold]", soft_wrap=True)
            if serve or serve_for is not None:
                _serve(client, console, demo, for_s=serve_for)
            else:
                console.print(SEE_LIVE, soft_wrap=True, highlight=False)
    except (BenchmarkError, ExtenderError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the extender is ended too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(client: httpx.Client, console: Console, *, seeds: range, n_pods: int) -> Demo:
    start = time.perf_counter()
    nodes = lay_out_fleet(FLEET)
    extender = HttpExtender(client)
    products = list_products(nodes.values())
    mixes = [draw_pods(n_pods, seed=seed, products=products) for seed in seeds]
    played: list[tuple[Run, ...]] = []
    with _progress(console, "placing pods", len(seeds) * n_pods * N_POLICIES) as advance:
        for seed, mix in zip(seeds, mixes, strict=True):
            policies = _policies(nodes, extender, seed)
            played.append(tuple(play(policy, mix, nodes, advance=advance) for policy in policies))
    pool = lay_out_pool()
    coterie = ExtenderPolicy(pool, HttpExtender(client), seed=seeds[0])
    jobs = compare_jobs(coterie, pool, seed=seeds[0], pause=time.sleep)
    figures = [tuple(compute_figures(run, nodes) for run in runs) for runs in played]
    shown = played[0]
    matched = [
        one
        for seed, runs in zip(seeds, played, strict=True)
        for one in match_pods(runs, nodes, seed=seed)
    ]
    date = datetime.now(tz=UTC).isoformat(timespec="seconds")
    return Demo(
        seed=seeds[0],
        cluster=FLEET,
        nodes=nodes,
        pods=mixes[0],
        runs=shown,
        figures=figures[0],
        spans=tuple(span(of_policy) for of_policy in zip(*figures, strict=True)),
        matched=tuple(matched),
        gains=gain_by_machine(matched, nodes),
        examples=pick_examples(matched),
        jobs=jobs,
        n_requests=extender.n_requests,
        seconds=time.perf_counter() - start,
        environment=read_environment(date, {}),
        version=importlib.metadata.version("coterie"),
    )


def _policies(nodes: dict[str, DemoNode], extender: HttpExtender, seed: int) -> tuple[Policy, ...]:
    settings = load_settings({"cluster": FLEET})
    return (
        MostAllocatedPolicy(
            "plain kubelet", "most-allocated node, random GPUs", PLAIN_KUBELET, nodes, seed=seed
        ),
        MostAllocatedPolicy(
            "NVIDIA best-effort",
            "most-allocated node, GPUs by NVIDIA's rules",
            NVIDIA_BEST_EFFORT,
            nodes,
            seed=seed,
        ),
        RivalOnCoterieNode(
            NVIDIA_BEST_EFFORT, nodes, settings.cluster_spec(), settings.rules, seed=seed
        ),
        ExtenderPolicy(nodes, extender, seed=seed),
    )


@contextmanager
def _progress(console: Console, what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, one line elsewhere."""
    if not console.is_terminal:
        console.print(what)
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


def _print(demo: Demo, console: Console) -> None:
    n_gpus = sum(node.n_gpus for node in demo.nodes.values())
    console.print(
        f"\n{len(demo.pods)} pods, seed {demo.seed}, on {len(demo.nodes)} nodes with {n_gpus} "
        f"GPUs; {demo.n_requests} requests to the extender"
    )
    console.print(policy_table(demo.figures))
    if demo.spans[0].n_mixes > 1:
        console.print(span_table(demo.spans))
    console.print(gain_table(demo))
    if demo.examples:
        console.print(example_table(demo))
    console.print(job_table(demo.jobs))
    console.print(say_jobs(demo.jobs.theirs, demo.jobs.ours), highlight=False)


def _write(demo: Demo, console: Console, out: Path) -> Path:
    with _progress(console, "drawing", count_drawings(demo)) as advance:
        page = render_report(demo, advance=advance)
    path = out / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _serve(client: httpx.Client, console: Console, demo: Demo, *, for_s: float | None) -> None:
    """Let pods come and go on the extender's cluster, and say where to look."""
    pool = demo.jobs.pool
    traffic = Traffic(client, demo.nodes, list_products(demo.nodes.values()))
    with until_signal() as ended:
        traffic.fill()
        coterie = ExtenderPolicy(pool, HttpExtender(client), seed=0)
        traffic.jobs = JobTraffic(coterie, pool, minute=traffic.minute)
        running = traffic.player.running.values()
        newest = next(reversed(running)).pod
        url = str(client.base_url).rstrip("/")
        kubectl_coterie = Path(sys.executable).with_name("kubectl-coterie")
        lines = (
            f"page: {url}/ui/",
            f"{len(running)} pods run on {len(demo.nodes)} nodes; each second some come or end.",
            f"Jobs of several pods come and go on {len(pool)} more.",
            "Look, call the extender, and end it with ctrl-C:",
            f"  curl {url}/api/v1/cluster",
            f"  {kubectl_coterie} pods -A --extender-url {url}",
            f"  {kubectl_coterie} groups -A --extender-url {url}",
            f"  curl {url}/explain/{NAMESPACE}/{newest.name}   # while that pod runs",
            f"  curl {url}/metrics",
            f"  curl {url}/explain --data '{json.dumps(EXAMPLE_POD)}'",
        )
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False)
        come_and_go(traffic, ended.wait, for_s=for_s)
    console.print("ended")


if __name__ == "__main__":
    typer.run(main)
