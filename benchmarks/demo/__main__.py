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
from argparse import ArgumentParser
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.demo.extender import HttpExtender
from benchmarks.demo.fleet import FLEET, lay_out_fleet, list_products
from benchmarks.demo.jobs import lay_out_pool, play_jobs, say_jobs, write_cluster
from benchmarks.demo.pods import NAMESPACE, draw_pods
from benchmarks.demo.policies import ExtenderPolicy, MostAllocatedPolicy
from benchmarks.demo.process import run_extender
from benchmarks.demo.report import Demo, render_report
from benchmarks.demo.results import (
    compute_figures,
    gain_by_machine,
    match_pods,
    pick_examples,
    say_result,
)
from benchmarks.demo.serve import JobTraffic, Traffic, come_and_go, until_signal
from benchmarks.demo.tables import show_tables
from benchmarks.demo.timeline import play
from benchmarks.errors import BenchmarkError
from benchmarks.report import read_environment
from benchmarks.rivals import NVIDIA_BEST_EFFORT, PLAIN_KUBELET
from extender.errors import ExtenderError
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import httpx

__all__ = ["main"]

LOG = "extender.log"
EXAMPLE_POD = {
    "metadata": {"name": "mine", "namespace": NAMESPACE, "uid": "mine"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {DEFAULT_RESOURCE: "4"}}}]},
}
"""The pod of the `explain` command that `--serve` prints."""
SEE_LIVE = "page: make demo SERVE=1 shows the same cluster live, with pods that come and go"


def main(arguments: Sequence[str] | None = None) -> int:
    """Place pods by Coterie and by its rivals, print and write a report; returns the exit code."""
    parser = ArgumentParser("python -m benchmarks.demo", description="Coterie beside its rivals.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the pods and of every draw.")
    parser.add_argument("--pods", type=int, default=120, help="Number of pods of a mix.")
    parser.add_argument("--further", type=int, default=5, help="Further mixes, of the next seeds.")
    out = Path("build/demo")
    parser.add_argument("--out", type=Path, default=out, help="Folder for the report and the log.")
    parser.add_argument("--port", type=int, default=0, help="Port; 0 takes a free one.")
    parser.add_argument("--serve", action="store_true", help="Then show the page, live.")
    options = parser.parse_args(arguments)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        cluster, log = str(write_cluster(options.out)), options.out / LOG
        with _ending_on_sigterm(), run_extender(cluster, port=options.port, log=log) as client:
            print(f"extender is ready at {client.base_url}, its log is {log}", flush=True)
            seeds = range(options.seed, options.seed + options.further + 1)
            demo = _run(client, seeds=seeds, n_pods=options.pods)
            print(show_tables(demo))
            report = options.out / "report.html"
            report.write_text(render_report(demo), encoding="utf-8")
            print(f"\n{say_jobs(*demo.jobs)}")
            print(say_result(demo.matched, demo.figures, len(demo.pods)))
            print(f"report: {report.resolve().as_uri()}")
            if options.serve:
                _serve(client, demo)
            else:
                print(SEE_LIVE)
    except (BenchmarkError, ExtenderError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the extender is ended too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(client: httpx.Client, *, seeds: range, n_pods: int) -> Demo:
    start = time.perf_counter()
    nodes, pool = lay_out_fleet(FLEET), lay_out_pool()
    products = list_products(nodes.values())
    extender = HttpExtender(client)
    mixes = [draw_pods(n_pods, seed=seed, products=products) for seed in seeds]
    n_gpus = sum(node.n_gpus for node in nodes.values())
    print(f"placing {n_pods} pods, seed {seeds[0]}, on {len(nodes)} nodes with {n_gpus} GPUs")
    played = [
        (
            play(MostAllocatedPolicy("plain kubelet", PLAIN_KUBELET, nodes, seed=seed), mix),
            play(
                MostAllocatedPolicy("NVIDIA best-effort", NVIDIA_BEST_EFFORT, nodes, seed=seed), mix
            ),
            play(ExtenderPolicy(nodes, extender, seed=seed), mix),
        )
        for seed, mix in zip(seeds, mixes, strict=True)
    ]
    one_by_one = MostAllocatedPolicy("one by one", NVIDIA_BEST_EFFORT, pool, seed=seeds[0])
    coterie = ExtenderPolicy(pool, extender, seed=seeds[0])
    jobs = play_jobs(one_by_one, pool), play_jobs(coterie, pool, pause=time.sleep)
    matched = [
        one
        for seed, runs in zip(seeds, played, strict=True)
        for one in match_pods(runs, nodes, seed=seed)
    ]
    date = datetime.now(tz=UTC).isoformat(timespec="seconds")
    return Demo(
        seed=seeds[0],
        n_mixes=len(seeds),
        cluster=FLEET,
        nodes=nodes,
        pods=mixes[0],
        runs=played[0],
        figures=tuple(compute_figures(runs, nodes) for runs in zip(*played, strict=True)),
        matched=tuple(matched),
        gains=gain_by_machine(matched, nodes),
        examples=pick_examples(matched),
        pool=pool,
        jobs=jobs,
        n_requests=extender.n_requests,
        seconds=time.perf_counter() - start,
        environment=read_environment(date, {}),
        version=importlib.metadata.version("coterie"),
    )


def _serve(client: httpx.Client, demo: Demo) -> None:
    """Let pods come and go on the extender's cluster, and say where to look."""
    policy = ExtenderPolicy(demo.nodes, HttpExtender(client), seed=0)
    traffic = Traffic(policy, list_products(demo.nodes.values()))
    with until_signal() as ended:
        traffic.fill()
        coterie = ExtenderPolicy(demo.pool, HttpExtender(client), seed=0)
        traffic.jobs = JobTraffic(coterie, demo.pool, minute=traffic.minute, pause=time.sleep)
        running = traffic.player.running.values()
        newest = next(reversed(running)).pod
        url = str(client.base_url).rstrip("/")
        kubectl_coterie = Path(sys.executable).with_name("kubectl-coterie")
        explain = f"explain {newest.name} -n {NAMESPACE}"
        lines = (
            f"page: {url}/ui/",
            f"{len(running)} pods run on {len(demo.nodes)} nodes; each second some come or end.",
            f"Jobs of several pods come and go on {len(demo.pool)} more.",
            "Look, call the extender, and end it with ctrl-C:",
            f"  curl {url}/api/v1/cluster",
            f"  {kubectl_coterie} pods -A --extender-url {url}",
            f"  {kubectl_coterie} groups -A --extender-url {url}",
            f"  {kubectl_coterie} {explain} --extender-url {url}   # while that pod runs",
            f"  curl {url}/explain/{NAMESPACE}/{newest.name}   # while that pod runs",
            f"  curl {url}/metrics",
            f"  curl {url}/explain --data '{json.dumps(EXAMPLE_POD)}'",
        )
        print("\n".join(lines), flush=True)
        come_and_go(traffic, ended.wait)
    print("ended")


if __name__ == "__main__":
    sys.exit(main())
