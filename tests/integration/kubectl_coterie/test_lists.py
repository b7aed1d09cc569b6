"""Lists: nodes, pods and capacity, on answers that a test gives."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.integration.kube.forwarding_server import ForwardingServer

SUMS = {
    "gpus": 16,
    "gpus_free": 5,
    "gpus_stranded": 1,
    "gpus_unhealthy": 1,
    "gpus_unavailable": 0,
    "pods_pending": 1,
}


NOW = [0.0]
"""When the test began: a run of all tests takes longer than ages are exact to."""


@pytest.fixture(autouse=True)
def begun():
    """Ages count from the beginning of each test."""
    NOW[0] = time.time()


def page(*items: Any) -> Any:
    """A page of a list."""
    return {"generation": 1, "items": list(items), "continue": None, "remaining": 0}


def node(name="gpu-1", **changed):
    """A node of the read API."""
    gpu = {"state": "free", "pod": None, "pod_uid": None, "reason": None}
    gpus = [gpu | {"index": 0, "id": "a"}, gpu | {"index": 1, "id": "b", "pod_uid": "u"}]
    gpus[1]["state"] = "held"
    best = {"2": {"gpus": [0, 1], "gbytes_per_s": 24.0, "share": 1.0}}
    return {
        "name": name,
        "machine": "m",
        "gpus": gpus,
        "free": 1,
        "best": best,
        "zone": "",
        "is_unschedulable": False,
        "problems": [],
    } | changed


def placed(name="p1", **changed):
    """A placed pod of the read API."""
    return {
        "namespace": "default",
        "name": name,
        "uid": name,
        "node": "gpu-1",
        "machine": "m",
        "state": "held",
        "gpus": [0, 1],
        "gbytes_per_s": 24.0,
        "share": 1.0,
        "limited_by": "port",
        "containers": [],
        "as_planned": True,
        "planned_ids": ["a", "b"],
    } | changed


def pending(name="w", **changed):
    """A pod that waits."""
    return {
        "namespace": "default",
        "name": name,
        "uid": name,
        "size_gpus": 8,
        "affinity": "nvlink",
        "reason": "no free GPU set has the required affinity",
        "reason_label": "affinity_taken",
        "reason_short": "no free NVLink set",
        "since_unix_s": NOW[0] - 930,
        "would_fit": {"node": "gpu-1", "when_ended": ["default/p1"], "gpus_freed": 2},
    } | changed


def cells(text: str) -> list[list[str]]:
    """The cells of a table's lines."""
    return [line.split("   ") for line in text.splitlines()]


def test_nodes(serve):
    """Filters go to the extender; one node alone by name."""
    bad = {"index": 0, "id": "c", "state": "unhealthy", "pod_uid": None, "reason": "XID 79"}
    other = node("gpu-2", gpus=[bad], best=None, free=0, is_unschedulable=True)
    call = serve(nodes=page(node(), other))
    shown = cells(call("nodes", "--machine", "m", "--unhealthy").stdout)
    assert [one.strip() for one in shown[1] if one.strip()] == [
        "gpu-1",
        "m",
        "2",
        "1",
        "0",
        "24 (100 %)",
        "<none>",
        "<none>",
        "1",
        "yes",
    ]
    assert shown[2][0].strip() == "gpu-2"
    assert shown[2][-1].strip() == "no"
    query = dict(call.server.queries)["nodes"]
    assert (query["machine"], query["unhealthy"]) == ("m", "true")
    assert call("nodes", "gpu-2", "-o", "name").stdout == "node/gpu-2\n"
    assert "gpu-1" not in call("nodes", "gpu-2", "-o", "wide", "--sort-by", "best 2").stdout
    assert json.loads(call("nodes", "-o", "json").stdout)["items"][0]["name"] == "gpu-1"
    assert call("nodes", "nope", code=1).stderr == (
        "error: node 'nope' is not known to the extender, or not listed with these options; "
        "`kubectl coterie nodes` lists those that are\n"
    )


def test_no_nodes(serve):
    """As kubectl says it, on standard error."""
    done = serve(nodes=page())("nodes")
    assert (done.stdout, done.stderr) == ("", "No GPU nodes found.\n")


def test_pods(serve):
    """Placed ones, then those that wait, each with its state."""
    call = serve(
        pods=page(
            placed("p2", as_planned=False, gpus=[0], gbytes_per_s=None, share=None)
            | {"limited_by": None},
            placed("p1"),
            placed("p3", state="devices_unknown", gpus=[], planned_ids=[], as_planned=None)
            | {"gbytes_per_s": None, "share": None},
        ),
        pending=page(
            pending(),
            pending("other", namespace="ml"),
            pending("odd", size_gpus=None, affinity=None, reason="invalid\x1b", would_fit=None)
            | {"reason_label": "invalid_request", "reason_short": "invalid\x1b"},
        ),
    )
    shown = call("pods", "--no-headers").stdout
    assert [[one.strip() for one in row if one.strip()] for row in cells(shown)] == [
        ["p1", "Placed", "2", "gpu-1", "m", "{0,1}", "24", "100 %", "<none>", "<none>"],
        ["p2", "Differs from plan", "1", "gpu-1", "m", "{0}"] + ["<none>"] * 4,
        ["p3", "Devices unknown", "<none>", "gpu-1", "m"] + ["<none>"] * 5,
        ["w", "Pending", "8"] + ["<none>"] * 5 + ["no free NVLink set", "15m"],
        ["odd", "Pending"] + ["<none>"] * 6 + ["invalid?", "15m"],
    ]
    assert dict(call.server.queries)["pods"]["namespace"] == "default"
    wide = call("pods", "-A", "-o", "wide").stdout
    assert wide.startswith("NAMESPACE   NAME ")
    assert "LIMITED BY" in wide
    assert "a GPU's PCIe port" in wide
    assert "gpu-1 when p1 (2 GPUs) ends" in wide
    assert "other" in wide
    names = call("pods", "--sort-by", "gpus", "-o", "name").stdout.split()
    assert names[:3] == ["pod/p2", "pod/p1", "pod/w"]


def test_pods_of_a_node_and_pods_that_wait(serve):
    """What waits is on no node."""
    call = serve(pods=page(placed()), pending=page(pending()))
    assert call("pods", "--node", "gpu-1", "-o", "name").stdout == "pod/p1\n"
    assert dict(call.server.queries)["pods"]["node"] == "gpu-1"
    assert call("pods", "--pending", "-o", "name").stdout == "pod/w\n"
    assert call("pods", "w", "-o", "name").stdout == "pod/w\n"
    assert yaml.safe_load(call("pods", "w", "-o", "yaml").stdout)["items"][0]["name"] == "w"
    empty = serve(pods=page(), pending=page())
    assert empty("pods", "--pending").stderr == "No pods wait for GPUs in namespace default.\n"
    assert empty("pods", "-A").stderr == "No pods with GPUs found.\n"


def event(generation: int) -> bytes:
    """A change on the stream."""
    content = json.dumps({"generation": generation, "nodes": [], "pending": True})
    return f"event: change\nid: {generation}\ndata: {content}\n\n".encode()


def test_watching_shows_what_changes(serve):
    """Pods of the same name in two namespaces are two; what has not changed is not repeated."""
    answers = iter(
        [
            page(),
            page(pending("w"), pending("w", namespace="ml")),
            page(pending("w"), pending("w", namespace="ml", size_gpus=4)),
            page(pending("w"), pending("w", namespace="ml", size_gpus=4)),
        ]
    )
    call = serve(
        pods=page(),
        pending=lambda _request: web.json_response(next(answers)),
        stream=event(1) + event(2) + event(3),
    )
    done = call("pods", "-A", "-w")
    assert done.stderr == (
        "No pods with GPUs found.\n"
        "The extender ended the stream of changes: it stops or restarts.\n"
    )
    assert [row[0].strip() for row in cells(done.stdout)] == [
        "NAMESPACE",
        "default",
        "ml",
        "ml",
    ]


@pytest.mark.parametrize(
    ("option", "expected"),
    [(("--node", "gpu-1"), ["NAME", "p1", "p2"]), (("p1",), ["NAME", "p1"])],
    ids=["node", "name"],
)
def test_what_goes_while_one_watches_is_no_mistake(serve, option, expected):
    """An option that named nothing would be one, but only before anything was shown."""
    answers = iter([page(placed("p1")), page(), page(placed("p2"))])
    call = serve(
        pods=lambda _request: web.json_response(next(answers)),
        pending=page(),
        stream=event(1) + event(2),
    )
    done = call("pods", "-A", "-w", *option)
    assert done.stderr == "The extender ended the stream of changes: it stops or restarts.\n"
    assert [row[1].strip() for row in cells(done.stdout)] == expected


def test_labels_are_selected_by_the_api_server(serve, beside, tmp_path):
    """The extender does not know them."""
    call = serve(
        nodes=page(node(), node("gpu-2")),
        pods=page(placed("p1"), placed("p2"), placed("p1", namespace="ml")),
        pending=page(),
    )
    kube = ForwardingServer()
    queries = []

    def listed(name: str, **metadata: str):
        def respond(request, _body):
            queries.append(dict(request.query))
            items = [{"metadata": {"name": name, **metadata}}]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

        return respond

    kube.answer("GET", "/api/v1/nodes", listed("gpu-2"))
    kube.answer("GET", "/api/v1/namespaces/default/pods", listed("p2", namespace="default"))
    kube.answer("GET", "/api/v1/pods", listed("p1", namespace="ml"))
    beside(kube)
    given = ("-o", "name", "-l", "a=b", "--kubeconfig", str(kube.kubeconfig(tmp_path)))
    assert call("nodes", *given).stdout == "node/gpu-2\n"
    assert call("pods", *given).stdout == "pod/p2\n"
    everywhere = ("-l", "a=b", "--kubeconfig", given[-1], "-A", "--no-headers")
    assert call("pods", *everywhere).stdout.split()[:2] == ["ml", "p1"]
    assert all(one["labelSelector"] == "a=b" for one in queries)


def machine(**changed):
    """A machine type's capacity."""
    return {
        "topology": "0123456789abcdef",
        "machine": "m",
        "resource": "nvidia.com/gpu",
        "nodes": 2,
        "gpus": 16,
        "free": 5,
        "unhealthy": 1,
        "unavailable": 3,
        "placeable": {"2": 2, "4": 1, "8": 0},
        "stranded": 1,
        "stranded_since_unix_s": NOW[0] - 3600,
        "efficiency": 0.75,
    } | changed


WORDS = ["2", "16", "5", "1", "3", "2", "1", "0"]
"""Its counts in a line, but for stranded GPUs."""
COUNTED = {"topology": None, "machine": "devices", "efficiency": None, "stranded": 0}


def test_capacity(serve):
    """The headline and a line for each machine type."""
    call = serve(cluster=SUMS, capacity={"machines": [machine(), machine(**COUNTED)]})
    head, titles, first, second = call("capacity").stdout.splitlines()
    assert head == "16 GPUs, 5 free, 1 of them can form no set of four, 1 unhealthy, 1 pod waits"
    assert titles.split("   ")[0].strip() == "MACHINE"
    assert first.split() == [
        "m",
        *[*WORDS, "1", "(for", "60m)", "75", "%"],
    ]
    assert second.split() == ["devices", *WORDS, "0", "<none>"]
    wide = call("capacity", "-o", "wide", "--sort-by", "stranded").stdout
    assert wide.splitlines()[2].split()[-2:] == ["nvidia.com/gpu", "<none>"]
    assert wide.splitlines()[3].split()[-2:] == ["nvidia.com/gpu", "0123456789ab"]
    assert call("capacity", "-o", "name").stdout == "machine/m\nmachine/devices\n"
    assert not call("capacity", "--no-headers").stdout.startswith("16 GPUs")
    assert json.loads(call("capacity", "-o", "json").stdout)["items"][0]["gpus"] == 16


def test_capacity_over_time(serve):
    """Of each part of the time; machine types without a topology have their own."""
    points = [
        [int(NOW[0]) - 5 * 3600, 0, 0, 0, 0, 0, None],
        [int(NOW[0]) - 60, 16, 0, 0, 0, 0, 0.5],
    ]
    points.append([int(NOW[0]) - 9 * 3600, 8, 0, 0, 0, 0, None])
    kind = {key: machine()[key] for key in ("machine", "topology", "resource")}
    empty = [[int(NOW[0]) - 5 * 3600, 16, 0, 0, 0, 0, None]]
    others = [kind | {"machine": "n", "points": empty}, kind | {"resource": "r", "points": empty}]
    history = [*others, kind | {"points": points}]
    call = serve(
        cluster=SUMS,
        capacity={"machines": [machine(), machine(**COUNTED)]},
        history={"machines": history},
    )
    lines = call("capacity", "--history").stdout.splitlines()
    assert "FREE, 6 H" in lines[1]
    assert lines[2].count("█") == 1
    assert lines[2].endswith("▄") or lines[2].endswith("▅")
    assert "▁" not in lines[3]
    assert "FREE, 12 H" in call("capacity", "--history", "12").stdout
    assert call("capacity", "--history", "0", code=1).stderr == (
        "error: --history is 0, expected 1 to 168 hours\n"
    )


def test_a_bar_is_the_mean_of_its_part_of_the_time(serve):
    """A minute at its end does not stand for all of it; an efficiency is not always known."""
    points = [
        [int(NOW[0]) - 120, 16, 0, 0, 0, 0, None],
        [int(NOW[0]) - 60, 0, 0, 0, 0, 0, 1.0],
    ]
    kind = {key: machine()[key] for key in ("machine", "topology", "resource")}
    call = serve(
        cluster=SUMS,
        capacity={"machines": [machine()]},
        history={"machines": [kind | {"points": points}]},
    )
    shown = call("capacity", "--history", "--no-headers").stdout
    assert [bar for bar in shown if bar in "▁▂▃▄▅▆▇█"] == ["▅", "█"]


def test_capacity_as_it_changes(serve):
    """The headline comes with the machine types that changed."""
    answers = iter([machine(), machine(), machine(free=4)])
    call = serve(
        cluster=SUMS,
        capacity=lambda _: web.json_response({"machines": [next(answers)]}),
        stream=event(1) + event(2),
    )
    lines = call("capacity", "-w").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["16", "MACHINE", "m", "16", "m"]


def test_a_field_that_an_older_extender_does_not_send_is_named(serve):
    """In a sentence, where the command and the extender are of different versions."""
    pod = pending()
    del pod["reason_short"]
    call = serve(pending=page(pod))
    assert call("pods", "--pending", code=1).stderr == (
        "error: the extender's answer has no reason_short: this extender may be older than the "
        "command\n"
    )
