"""The audit's page: its example is what the program prints."""

from __future__ import annotations

from itertools import pairwise

from tests.docs.markdown import ROOT
from tests.kubectl_lists import held_by, kube_list, node, pod
from topology.annotations import DevicesReport
from topology.audit import audit, list_audit, read_cluster
from topology.report.blocks import block_text

PAGE = ROOT / "docs" / "audit.md"
BEGIN = "<!-- example: generated from topology/audit, rewritten by `make golden` -->\n"
END = "<!-- end of example -->\n"
FLEET = {
    "dgx-1-v100": 8,
    "dgx-h100": 6,
    "8x-a6000-bridged": 4,
    "8x-l4": 4,
    "dgx-1-v100-dead-link": 1,
}
ORDERS = [(0, 5, 2, 7, 1, 4, 3, 6), (3, 0, 6, 5, 1, 2, 4, 7), (0, 1, 2, 3, 4, 5, 6, 7)]
"""In which GPUs are given away, as a device plugin without preferences does."""
SIZES = [(2, 2, 1), (4, 2), (3, 1, 1, 2), (8,), (2, 1)]


def example() -> str:
    """What the audit of a small fleet prints."""
    nodes, pods = [], []
    kinds = [name for name, count in FLEET.items() for _ in range(count)]
    for k, kind in enumerate(kinds):
        name, order, sizes = f"gpu-{k:02}", ORDERS[k % len(ORDERS)], SIZES[k % len(SIZES)]
        ends = [0, *(sum(sizes[: i + 1]) for i in range(len(sizes)))]
        holds = [
            held_by(f"train-{k:02}-{i}", name, sorted(order[begin:end]))
            for i, (begin, end) in enumerate(pairwise(ends))
        ]
        nodes.append(node(name, kind, report=DevicesReport(1, holds=tuple(holds))))
        pods += [pod(hold.name, name, len(hold.ids)) for hold in holds]
    nodes.append(node("gpu-23", None))
    pods.append(pod("train-23-0", "gpu-23", 4))
    return block_text(list_audit(audit(read_cluster(kube_list(*nodes), kube_list(*pods)))))


def test_the_example_is_generated(check_golden):
    """A reader compares it with the first screen of an own cluster; `make golden` rewrites it."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    text = f"\n```text\n{example()}```\n\n"
    check_golden(PAGE, f"{before}{BEGIN}{text}{END}{after}")
