"""`make demo` as its user runs it: a process that starts the extender, reports and cleans up."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from benchmarks.demo.process import run_extender
from benchmarks.errors import ServerFailed
from benchmarks.tether import tethered

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240


def command(*arguments):
    """The demo's command line; the demo ends with this process, and its extender with the demo."""
    return tethered([sys.executable, "-m", "benchmarks.demo", *map(str, arguments)])


def events(log):
    """The extender's log; lines that are no JSON are left out."""
    lines = log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def is_listening(port):
    """Whether a program accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ready_port(log):
    """Where the extender listened."""
    return next(event["port"] for event in events(log) if event["event"] == "listening")


def result(text):
    """The sentences at the end, a line each: three on jobs, three on pods."""
    return text.splitlines()[-8:-2]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demo as `make demo` runs it: what it printed, and its folder."""
    out = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        command("--out", out),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, out


def test_the_tables_name_every_policy_and_the_report(shown):
    """What a newcomer reads first."""
    text, out = shown
    for policy in ("plain kubelet", "NVIDIA best-effort", "Coterie"):
        assert re.search(rf"^{policy} +[0-9.]+ +[0-9.]+ +[0-9.]+ \([0-9.]+\)", text, re.MULTILINE)
    assert "over 6 mixes of 120 pods" in text
    assert "0: every set is" in text
    for row in (
        r"one by one +4 of 6, never starts +4 +3 +-",
        r"Coterie +0 of 6, later 6 +6 +2 +382",
    ):
        assert re.search(row, text)
    *_, report, live = text.splitlines()
    jobs, pods = result(text)[0], result(text)[3]
    assert jobs == "Of 3 jobs over several nodes Coterie runs 2 at once and 1 after them."
    assert re.match(r"Pods get \d+ % of their machine's best bandwidth with Coterie, ", pods)
    assert report == f"report: {(out / 'report.html').as_uri()}"
    assert "SERVE=1" in live


def test_the_readme_quotes_the_result(shown):
    """The sentences that a newcomer compares with what `make demo` printed."""
    readme = (ROOT / "README.md").read_text().splitlines()
    assert [one for one in result(shown[0]) if one not in readme] == []


GAINS = {
    "NVLink meshes": (
        *("summit", "dgx-1-v100", "dgx-1-v100-dead-link", "dgx-1-p100"),
        *("8x-a6000-bridged", "8x-a100-pcie-pairs"),
    ),
    "PCIe only": ("8x-rtx4090", "4x-l40s"),
}


@pytest.mark.parametrize("row", GAINS)
def test_the_readme_claims_the_gains_of_the_table(shown, row):
    """Least and largest ratio of means over a plain kubelet, largest over NVIDIA best-effort."""
    means = {
        machine: [float(one) for one in values]
        for machine, *values in re.findall(
            r"^(\S+) +\d+ +([\d.]+) +([\d.]+) +([\d.]+) ", shown[0], re.MULTILINE
        )
    }
    plain = [means[machine][2] / means[machine][0] for machine in GAINS[row]]
    more = max(means[machine][2] / means[machine][1] - 1 for machine in GAINS[row])
    (claim,) = re.findall(
        rf"^\| {row} .*\| ([\d.]+) to ([\d.]+) times \| up to (\d+) % more \|$",
        (ROOT / "README.md").read_text(),
        re.MULTILINE,
    )
    printed = re.findall(r"\+(\d+) %$", shown[0], re.MULTILINE)
    assert claim[:2] == (f"{min(plain):.1f}", f"{max(plain):.1f}")
    assert claim[2] in printed
    assert float(claim[2]) == pytest.approx(100 * more, abs=3)


def test_the_report_is_one_file_that_stands_alone(shown):
    """No reference to the outside but the names of XML namespaces."""
    page = (shown[1] / "report.html").read_text()
    assert set(re.findall(r"https?://[^\"' <)]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert page.count("<svg") >= 2
    assert "<h2>Jobs of several pods</h2>" in page


def test_the_extender_was_called_over_http_and_has_ended(shown):
    """Every verb of a scheduling cycle in its log, then its end."""
    log = shown[1] / "extender.log"
    logged = events(log)
    assert {"filter", "prioritize", "bind"} <= {event.get("verb") for event in logged}
    assert {event.get("outcome") for event in logged} <= {None, "ok", "refused"}
    assert logged[-1]["event"] == "stopped"
    assert not is_listening(ready_port(log))


def test_a_taken_port_is_reported_and_fails(tmp_path):
    """Exit code 1 and the extender's own words."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            command("--pods", 2, "--port", port, "--out", tmp_path),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert done.returncode == 1
    assert "extender ended early (status 2)" in done.stderr
    assert "cannot listen there" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_is_live_until_a_signal(tmp_path):
    """`--serve`: the printed address answers, pods come and go, and the end is clean.

    The printed commands run in a shell without the virtual environment's PATH.
    """
    process = subprocess.Popen(
        command("--pods", 2, "--further", 0, "--serve", "--out", tmp_path),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        printed = ""
        for line in process.stdout:
            printed += line
            if "explain --data" in line:
                break
        programs = re.findall(r"^  (\S*kubectl-coterie) ", printed, re.MULTILINE)
        assert [Path(one).is_file() and Path(one).is_absolute() for one in programs] == [True] * 3
        page = re.findall(r"^page: (\S+)$", printed, re.MULTILINE)[-1]
        assert "<title>Coterie</title>" in httpx.get(page, timeout=DEADLINE_S).text
        base = page.removesuffix("ui/")
        named = re.findall(r"curl (\S+explain/demo/\S+)", printed)[0]
        assert httpx.get(named, timeout=DEADLINE_S).json()["bound"]["has_what_was_planned"]
        before = httpx.get(f"{base}api/v1/cluster", timeout=DEADLINE_S).json()
        assert before["pods_placed"] > 30
        groups = {
            one["name"]: one
            for one in httpx.get(f"{base}api/v1/groups", timeout=DEADLINE_S).json()["items"]
        }
        assert [groups[name]["state"] for name in ("tune-1", "train-2")] == ["bound", "bound"]
        assert (groups["train-3"]["state"], groups["train-3"]["n_here"]) == ("waiting", 6)
        assert f"{groups['tune-1']['gbytes_per_s']:.0f} GB/s under 1 leaf switch" in printed
        until_s = time.monotonic() + DEADLINE_S
        while (
            httpx.get(f"{base}api/v1/cluster", timeout=DEADLINE_S).json()["generation"]
            < before["generation"] + 3
        ):
            assert time.monotonic() < until_s
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=DEADLINE_S) == 0
        assert not is_listening(ready_port(tmp_path / "extender.log"))
        assert events(tmp_path / "extender.log")[-1]["event"] == "stopped"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_comparison_and_the_extender(tmp_path, number, code):
    """Before the page is live."""
    process = subprocess.Popen(
        command("--pods", 300, "--further", 90, "--out", tmp_path),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        until_s = time.monotonic() + DEADLINE_S
        log = tmp_path / "extender.log"
        while not (log.exists() and any(one.get("verb") == "bind" for one in events(log))):
            assert time.monotonic() < until_s
            time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(timeout=DEADLINE_S) == code
        assert events(log)[-1]["event"] == "stopped"
    finally:
        process.kill()
        process.wait()


def test_the_extender_ends_with_a_demo_that_is_killed(tmp_path):
    """As where a test fails or is interrupted: no handler of the demo runs."""
    with subprocess.Popen(
        command("--pods", 300, "--further", 90, "--out", tmp_path),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("extender is ready")
        port = ready_port(tmp_path / "extender.log")
        assert is_listening(port)
        process.kill()
    until_s = time.monotonic() + DEADLINE_S
    while is_listening(port):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert events(tmp_path / "extender.log")[-1]["event"] != "stopped"


def test_a_cluster_that_cannot_be_made_is_reported(tmp_path):
    """The end of the log is in the message."""
    with (
        pytest.raises(ServerFailed, match="ended early"),
        run_extender("2x nonsense", port=0, log=tmp_path / "log"),
    ):
        pytest.fail("it cannot be ready")


def test_the_extender_ends_where_the_block_fails(tmp_path):
    """Whatever happens inside."""
    log = tmp_path / "log"

    def fail():
        with run_extender("1x gb200-tray", port=0, log=log) as client:
            assert client.get("/livez").text == "ok"
            msg = "inside"
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert not is_listening(ready_port(log))
