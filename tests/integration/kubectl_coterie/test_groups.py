"""`kubectl coterie groups`, on answers that a test gives."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from aiohttp import web

from kubectl_coterie import command_line
from tests.integration.kube.forwarding_server import ForwardingServer
from tests.integration.kubectl_coterie.test_lists import cells, event, page, pending, placed
from tests.programs import called

NOW = [0.0]


@pytest.fixture(autouse=True)
def begun():
    """Ages count from the beginning of each test."""
    NOW[0] = time.time()


def member(name: str, node: str | None = None) -> dict[str, Any]:
    """A member, as far as the command reads it."""
    return {"name": name, "uid": name, "node": node}


def bound(name: str = "train", **changed: Any) -> dict[str, Any]:
    """A group whose members have their nodes."""
    return {
        "namespace": "default",
        "name": name,
        "state": "bound",
        "size": 2,
        "n_here": 2,
        "n_claimed": 0,
        "n_bound": 2,
        "n_missing": 0,
        "reason": None,
        "reason_label": None,
        "detail": None,
        "first_since_unix_s": None,
        "complete_since_unix_s": None,
        "bound_since_unix_s": NOW[0] - 930,
        "level": "leaf",
        "domain": "P1/S12",
        "n_nodes": 2,
        "n_gpus": 16,
        "gbytes_per_s": 469.001,
        "least_gbytes_per_s": 337.68,
        "limited_by": "nic",
        "members": [member("train-0", "n1"), member("train-1", "n2")],
        "members_left_out": 0,
    } | changed


def waiting(name: str = "sweep", **changed: Any) -> dict[str, Any]:
    """A group of which members are missing."""
    return bound(
        name,
        state="waiting",
        size=4,
        n_here=3,
        n_bound=0,
        n_missing=1,
        reason="waits for its group: members are missing",
        reason_label="group_waiting",
        first_since_unix_s=NOW[0] - 630,
        bound_since_unix_s=None,
        level=None,
        domain=None,
        n_nodes=0,
        gbytes_per_s=None,
        least_gbytes_per_s=None,
        limited_by=None,
        members=[member("sweep-0"), member("sweep-1"), member("sweep-2")],
        **changed,
    )


def rows(text: str) -> list[list[str]]:
    """The cells of a table, blanks left out."""
    return [[one.strip() for one in row if one.strip()] for row in cells(text)]


def test_a_bound_group_and_one_that_waits(serve):
    """Where it is, what it is worth and since when; or how many are missing, and for how long."""
    call = serve(groups=page(waiting(), bound()))
    titles, first, second = rows(call("groups").stdout)
    assert " ".join(titles) == "NAME STATUS SIZE HERE BOUND DOMAIN GB/S WAITS AGE REASON"
    empty = "<none>"
    assert first == [
        *["sweep", "Waiting", "4", "3", "0", empty, empty, "10m", empty],
        "1 member is missing",
    ]
    assert second == ["train", "Bound", "2", "2", "2", "leaf P1/S12", "469", empty, "15m", empty]
    assert dict(call.server.queries)["groups"]["namespace"] == "default"


def test_wide_has_the_nodes_and_the_least(serve):
    """Nodes of members that are not listed are counted."""
    many = bound(n_nodes=600, size=None, limited_by="port", detail="a\x1b", namespace="ml")
    call = serve(groups=page(many))
    titles, row = rows(call("groups", "-A", "-o", "wide").stdout)
    assert titles[:2] == ["NAMESPACE", "NAME"]
    assert titles[-4:] == ["NODES", "AT LEAST", "LIMITED BY", "DETAIL"]
    assert row[-4:] == ["n1,n2,and 598 more", "338", "its GPUs' PCIe ports", "a?"]
    assert row[3] == "<none>"
    assert "namespace" not in dict(call.server.queries)["groups"]


def test_groups_are_chosen_and_sorted(serve):
    """By name, by a member's node, and those that wait by the extender itself."""
    call = serve(groups=page(waiting(), bound()), nodes__n3={"name": "n3"})
    assert call("groups", "train", "-o", "name").stdout == "group/train\n"
    assert call("groups", "--node", "n2", "-o", "name").stdout == "group/train\n"
    assert call("groups", "--node", "n3").stderr == "No groups found in namespace default.\n"
    by_size = call("groups", "--sort-by", "n_here", "-o", "name", code=1)
    assert "expected one of name, status, size, here, bound, domain, gb/s" in by_size.stderr
    assert call("groups", "--sort-by", "here", "-o", "name").stdout.split()[0] == "group/train"
    call("groups", "--waiting")
    assert dict(call.server.queries)["groups"]["state"] == "waiting"
    missing = call("groups", "nope", code=1).stderr
    assert "group 'nope' is not known to the extender" in missing
    assert "`kubectl coterie groups` lists those that are" in missing
    empty = serve(groups=page())
    assert empty("groups", "--waiting", "-A").stderr == "No groups wait for GPUs.\n"


def test_programs_read_the_fields_of_the_read_api(serve):
    """Members included."""
    call = serve(groups=page(bound()))
    assert json.loads(call("groups", "-o", "json").stdout)["items"] == [bound()]


def test_watching_shows_groups_that_change(serve):
    """Not those that stay as they are."""
    answers = iter([page(waiting(), bound()), page(waiting(n_claimed=0), bound(n_here=3))])
    call = serve(groups=lambda _request: web.json_response(next(answers)), stream=event(1))
    shown = rows(call("groups", "-w").stdout)
    assert [row[0] for row in shown] == ["NAME", "sweep", "train", "train"]
    assert shown[3][3] == "3"


def test_labels_are_those_of_the_members(serve, beside, tmp_path):
    """Groups have none; the API server knows the pods'."""
    kube = ForwardingServer()
    items = [{"metadata": {"name": "train-1", "namespace": "default"}}]
    kube.answer(
        "GET",
        "/api/v1/namespaces/default/pods",
        lambda *_: web.json_response({"metadata": {"resourceVersion": "1"}, "items": items}),
    )
    beside(kube)
    call = serve(groups=page(waiting(), bound()))
    given = ("-l", "a=b", "-o", "name", "--kubeconfig", str(kube.kubeconfig(tmp_path)))
    assert call("groups", *given).stdout == "group/train\n"


def test_an_older_extender_is_named(serve):
    """It serves no groups."""
    problem = {"title": "Not Found", "status": 404, "detail": "Not Found"}
    call = serve(groups=lambda _request: web.json_response(problem, status=404))
    assert call("groups", code=1).stderr == (
        "error: the extender answered groups with 404: Not Found; "
        "this extender may be older than the command\n"
    )


def test_names_of_groups_are_completed(serve, monkeypatch):
    """By the extender, which alone knows them; of the namespace."""
    monkeypatch.setattr("kubectl_coterie.commands.known_names.TIMEOUT_S", 60.0)
    call = serve(groups=page(waiting(), bound()))
    words = ("groups", "--extender-url", f"http://127.0.0.1:{call.server.port}", "-n", "ml", "t")
    done = called(command_line.complete, *words)
    assert done.stdout == "train\t\n:4\n"
    assert dict(call.server.queries)["groups"]["namespace"] == "ml"
    gone = called(command_line.complete, "groups", "--extender-url", "http://127.0.0.1:9", "")
    assert gone.stdout == ":4\n"


def test_names_are_completed_behind_a_flag_of_a_command_without_names(serve):
    """Such a command takes no word that is not a flag."""
    call = serve(groups=page())
    url = f"http://127.0.0.1:{call.server.port}"
    done = called(command_line.complete, "what-if", "--extender-url", url, "--drain=")
    assert (done.exit_code, done.stderr) == (0, "")


def test_pods_name_their_groups(serve):
    """Placed ones and those that wait, which have the counts too."""
    group = {"name": "sweep", "size": 4, "n_here": 3, "n_bound": 0}
    call = serve(
        pods=page(placed("p1", group="train"), placed("p2", group=None), placed("p3")),
        pending=page(pending("w", group=group)),
    )
    titles, *shown = rows(call("pods", "-o", "wide").stdout)
    at = titles.index("GROUP")
    assert [row[at] for row in shown] == ["train", "<none>", "<none>", "sweep"]
