"""The commands on an extender over an embedded cluster, as processes and users have them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.demo.process import run_extender
from kubectl_coterie import command_line
from tests.integration.extender.embedded_client import create, filtered, place
from tests.programs import called
from tests.unit.extender.pods import pod

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
NODES = ["dgx-1-v100-0", "dgx-1-v100-1", "8x-l4-0"]
KINDS = ["8x NVIDIA L4", "8x Tesla V100-SXM2-32GB"]


@pytest.fixture(scope="module")
def coterie(tmp_path_factory):
    """Calls a command on an extender with two placed pods and one that waits.

    What it prints is returned; with `code` 1 what it says on standard error.
    """
    log = tmp_path_factory.mktemp("extender") / "log"
    with run_extender("2x dgx-1-v100, 1x 8x-l4", port=0, log=log) as client:
        for uid, size, node in (("a", 4, NODES[0]), ("b", 6, NODES[1])):
            place(client, pod(size, uid=uid), [node])
        waits = create(client, pod(8, uid="w", affinity="nvlink", policy="required"))
        assert not filtered(client, waits, NODES)

        def call(*words: str, code: int = 0) -> str:
            url = str(client.base_url)
            done = called(command_line.main, *words, "-n", "default", "--extender-url", url)
            assert (done.exit_code, done.stdout if code else done.stderr) == (code, "")
            return done.stderr if code else done.stdout

        yield call


def test_explain(coterie):
    """A placed pod and one that waits."""
    placed = coterie("explain", "pod-a").splitlines()
    assert placed[0] == "pod-a  Placed   4 GPUs"
    assert placed[2].startswith("Has {0,1,2,3}, 99.4 GB/s (100 % of its best), limited by ")
    waits = coterie("explain", "pod-w", "--nodes").splitlines()
    assert waits[0].startswith("pod-w  Pending ")
    assert waits[0].endswith("   8 GPUs, nvlink, required")
    assert waits[1] == "0 of 3 nodes fit"
    assert "dgx-1-v100-0 has enough when pod-a (4 GPUs) ends" in waits[2]
    assert waits[4].startswith("Try: policy=preferred -> 8x-l4-0 {0,1,2,3,4,5,6,7}, 16 GB/s")
    assert [line.split()[0] for line in waits[6:]] == ["NODE", *sorted(NODES)]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_example_is_explained(coterie, file):
    """Each of its pods, by the extender itself."""
    shown = coterie("explain", "-f", str(file))
    assert "Would be placed" in shown or "Would wait" in shown


def test_pods(coterie):
    """Placed and pending."""
    rows = [line.split() for line in coterie("pods").splitlines()]
    assert [row[:3] for row in rows[1:]] == [
        ["pod-a", "Placed", "4"],
        ["pod-b", "Placed", "6"],
        ["pod-w", "Pending", "8"],
    ]


def test_capacity(coterie):
    """The headline counts what the table has."""
    lines = coterie("capacity", "--history").splitlines()
    assert lines[0] == "24 GPUs, 14 free, 2 of them can form no set of four, 1 pod waits"
    assert [line.partition(" (")[0] for line in lines[2:]] == KINDS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pods", "--node", "nosuch"), "--node is 'nosuch', expected the name of a node that"),
        (("groups", "--node", "nosuch"), "--node is 'nosuch', expected the name of a node that"),
        (
            ("nodes", "--machine", "dgx1"),
            f"--machine is 'dgx1', expected a machine type of the cluster: {KINDS[0]} (",
        ),
    ],
)
def test_a_filter_by_a_name_that_is_none_is_an_error(coterie, words, message):
    """An empty list would say that the node is empty."""
    assert coterie(*words, code=1).startswith(f"error: {message}")


def test_what_if(coterie):
    """A drained node's pods go to an added one."""
    file = str(EXAMPLES / "indexed-job.yaml")
    shown = coterie("what-if", "-f", file, "--drain", NODES[0], "--add", "dgx-1-v100=2")
    assert "3 of 3 pods find a node" in shown
    assert "evicted by the drain" in shown
    assert "Not considered:" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--drain", "nosuch"),
            (
                "--drain is 'nosuch', expected the name of a node: the cluster has 3, none of this "
                "name; `kubectl coterie nodes` lists them"
            ),
        ),
        (("--add", "v100"), "--add is 'v100', expected a machine type of the cluster or the name"),
        (("-f", "FILE"), "-f, pod train: pod 'default/train': annotation coterie.gpu/group-domain"),
    ],
)
def test_what_if_names_what_was_typed(coterie, tmp_path, words, message):
    """And not the fields of the read API's question."""
    file = tmp_path / "pod.yaml"
    manifest = pod(4, group_domain="leaf")
    manifest["metadata"] |= {"name": "train"}
    file.write_text(yaml.safe_dump(manifest))
    said = coterie("what-if", *(str(file) if one == "FILE" else one for one in words), code=1)
    assert said.startswith(f"error: {message}")


def test_what_if_of_a_group(coterie, tmp_path):
    """All members or none; what an example of the documentation says of itself."""
    example = yaml.safe_load((EXAMPLES / "indexed-job-group.yaml").read_text())
    shown = coterie("what-if", "-f", str(EXAMPLES / "indexed-job-group.yaml")).splitlines()
    assert shown[:2] == [
        "0 of 4 pods find a node",
        (
            "Group default/train-indexed: does not start: never: no domain of this cluster holds "
            "the group (the cluster has room for 3 of 4 members when empty)"
        ),
    ]
    template = example["spec"]["template"]
    template["metadata"]["annotations"]["coterie.gpu/group-size"] = "2"
    template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2
    example["spec"] |= {"completions": 2, "parallelism": 2}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(example))
    shown = coterie("what-if", "-f", str(file)).splitlines()
    assert shown[0] == "2 of 2 pods find a node"
    assert shown[1].startswith("Group default/train-indexed: all 2 members get nodes")
