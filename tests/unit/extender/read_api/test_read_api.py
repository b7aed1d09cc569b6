"""The routes of the read API, over an embedded cluster."""

from __future__ import annotations

import json

import pytest

from extender.http.responses import Problem
from tests.unit.extender.engines import engine
from tests.unit.extender.pods import pod
from tests.unit.extender.read_api.served import ServedReads

NODES = ["8x-l4-0", "dgx-1-v100-0", "dgx-1-v100-1"]
V100 = "dgx-1-v100"


@pytest.fixture
def served() -> ServedReads:
    """Two V100 machines and one without NVLink; two pods are placed, one waits."""
    served = ServedReads(engine())
    served.place(4, "u1", "dgx-1-v100-0")
    served.place(2, "u2", "8x-l4-0")
    served.now_s = 1010.0
    served.filter(8, "u3", ["dgx-1-v100-0"], affinity="nvlink", policy="required")
    return served


def test_the_cluster_is_summed_up(served):
    """The headline of a page: what is there, free and waiting."""
    body = served.get("cluster")
    del body["version"]
    assert body == {
        "generation": served.engine.cluster.snapshot.generation,
        "is_ready": True,
        "at_unix_s": 1010.0,
        "n_nodes": 3,
        "gpus": 24,
        "gpus_free": 18,
        "gpus_stranded": 0,
        "gpus_unhealthy": 0,
        "gpus_unavailable": 0,
        "pods_placed": 2,
        "pods_pending": 1,
    }


def test_a_node_shows_who_has_each_gpu_and_its_best_free_sets(served):
    """The best set of 8 is absent: there is none."""
    node = served.get("nodes/dgx-1-v100-0")
    assert [gpu["state"] for gpu in node["gpus"]] == ["planned"] * 4 + ["free"] * 4
    assert node["gpus"][0] == {
        "index": 0,
        "id": node["gpus"][0]["id"],
        "state": "planned",
        "pod": "default/pod-u1",
        "pod_uid": "u1",
        "group": None,
        "reason": None,
    }
    assert (node["free"], sorted(node["best"])) == (4, ["2", "4"])
    assert node["best"]["4"]["gpus"] == [4, 5, 6, 7]
    assert node["best"]["4"]["share"] == 1.0


def test_a_pod_shows_its_set_and_what_it_is_worth(served):
    """As planned, at the best of the machine."""
    pod = served.get("pods/default/pod-u1")
    machine = next(one for one in served.get("machines")["items"] if one["machine"] == V100)
    assert (pod["node"], pod["gpus"], pod["state"]) == ("dgx-1-v100-0", [0, 1, 2, 3], "planned")
    assert pod["gbytes_per_s"] == machine["best_gbytes_per_s"]["4"]
    assert (pod["share"], pod["limited_by"], pod["as_planned"]) == (1.0, "ring", True)
    assert pod["planned_ids"] == pod["ids"]
    (container,) = pod["containers"]
    assert (container["name"], container["gpus"]) == ("main", [0, 1, 2, 3])


def test_a_pod_of_one_gpu_has_no_figures(served):
    """There is nothing to reduce."""
    served.place(1, "u4", "8x-l4-0")
    pod = served.get("pods/default/pod-u4")
    figures = pod["gbytes_per_s"], pod["share"], pod["limited_by"]
    assert figures == (None, None, None)


def test_a_pending_pod_shows_why_and_since_when(served):
    """Its requests are those of its last filter call; since is its first rejection in a row."""
    served.now_s = 1015.0
    served.filter(8, "u3", ["dgx-1-v100-0"], affinity="nvlink", policy="required")
    (pod,) = served.get("pending")["items"]
    assert pod == {
        "namespace": "default",
        "name": "pod-u3",
        "uid": "u3",
        "resource": "nvidia.com/gpu",
        "size_gpus": 8,
        "containers": [{"name": "main", "size": 8}],
        "affinity": "nvlink",
        "policy": "required",
        "min_bandwidth_gbytes_per_s": None,
        "group": None,
        "reason": pod["reason"],
        "reason_label": "not_enough_free",
        "reason_short": "not enough free GPUs",
        "since_unix_s": 1010.0,
        "last_filtered_unix_s": 1015.0,
        "would_fit": None,
    }


def test_a_member_of_a_group_shows_how_many_are_here(served):
    """The counts follow the other members, whose own entries change nothing in this one."""

    def entry():
        return next(one for one in served.get("pending")["items"] if one["uid"] == "u5")

    member = {"group": "train", "group_size": "3"}
    served.filter(2, "u5", ["dgx-1-v100-0"], **member)
    first = entry()
    assert first["group"] == {"name": "train", "size": 3, "n_here": 1, "n_bound": 0}
    served.filter(2, "u6", ["dgx-1-v100-0"], **member)
    second = entry()
    assert second["group"] == {"name": "train", "size": 3, "n_here": 2, "n_bound": 0}
    assert first | {"group": None} == second | {"group": None}


def test_a_placed_member_names_its_group(served):
    """That of its plan."""
    served.place(2, "u7", "dgx-1-v100-1", group="train")
    assert served.get("pods/default/pod-u7")["group"] == "train"
    assert served.get("pods/default/pod-u1")["group"] is None


def test_a_pod_that_waits_no_longer_leaves_the_list(served):
    """Placed pods are in the other list."""
    served.place(8, "u3", "dgx-1-v100-1")
    assert served.get("pending")["items"] == []
    names = [pod["name"] for pod in served.get("pods")["items"]]
    assert names == ["pod-u2", "pod-u1", "pod-u3"]


def test_capacity_counts_placeable_sets_by_machine_type(served):
    """Sets side by side, within 10 % of the machine's best."""
    machines = {one["machine"]: one for one in served.get("capacity")["machines"]}
    assert list(machines) == ["8x-l4", V100]
    v100 = machines[V100]
    assert (v100["nodes"], v100["gpus"], v100["free"]) == (2, 16, 12)
    assert (v100["placeable"]["4"], v100["placeable"]["8"]) == (3, 1)
    assert (v100["stranded"], v100["efficiency"]) == (0, 1.0)


def test_stranded_gpus_are_counted_with_their_time():
    """Three free GPUs make no set of four; the time stays until none is stranded."""
    served = ServedReads(engine({"count": 1, "machine": "8x-l4"}))
    served.place(5, "u1", "8x-l4-0")
    first = served.get("capacity")["machines"][0]
    assert (first["stranded"], first["stranded_since_unix_s"]) == (3, 1000.0)
    served.now_s = 1100.0
    served.place(1, "u2", "8x-l4-0")
    assert served.get("capacity")["machines"][0]["stranded_since_unix_s"] == 1000.0
    for uid in ("u1", "u2"):
        served.end(uid)
    last = served.get("capacity")["machines"][0]
    assert (last["stranded"], last["stranded_since_unix_s"]) == (0, None)


def test_unhealthy_devices_have_their_reason():
    """Also found by the filter."""
    served = ServedReads(
        engine({"count": 1, "machine": "8x-l4"}, {"count": 1, "machine": V100, "unhealthy": [3]})
    )
    (node,) = served.get("nodes?unhealthy=true")["items"]
    bad = node["gpus"][3]
    assert (node["name"], bad["state"], bad["pod"]) == ("dgx-1-v100-0", "unhealthy", None)
    assert bad["reason"]
    assert served.get("cluster")["gpus_unhealthy"] == 1


@pytest.mark.parametrize("path", ["nodes", "pods", "pending", "machines"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_make_up_the_whole(served, path, limit):
    """In the same order, none twice; `remaining` counts what follows."""
    served.place(1, "u4", "8x-l4-0")
    served.place(1, "u5", "dgx-1-v100-1")
    served.filter(9, "u6", NODES)
    whole = served.get(path)
    assert (whole["continue"], whole["remaining"]) == (None, 0)
    found, token = [], ""
    while token is not None:
        page = served.get(f"{path}?limit={limit}" + (token and f"&continue={token}"))
        found += page["items"]
        assert len(found) + page["remaining"] == len(whole["items"])
        token = page["continue"]
    assert found == whole["items"]


def test_a_page_goes_on_where_its_last_item_was(served):
    """Nodes and pods that go meanwhile move no other."""
    served.place(1, "u4", "8x-l4-0")
    token = served.get("pods?limit=1")["continue"]
    served.end("u2")
    rest = served.get(f"pods?continue={token}")["items"]
    assert [pod["name"] for pod in rest] == ["pod-u4", "pod-u1"]


def test_lists_are_filtered(served):
    """By machine (name or digest), namespace and node."""
    digest = served.get("nodes/8x-l4-0")["topology"]
    for machine in ("8x-l4", digest):
        (node,) = served.get(f"nodes?machine={machine}")["items"]
        assert node["name"] == "8x-l4-0"
    assert served.get("nodes?machine=none")["items"] == []
    (pod,) = served.get("pods?node=8x-l4-0")["items"]
    assert pod["name"] == "pod-u2"
    assert served.get("pods?node=none")["items"] == []
    assert len(served.get("pods?namespace=default")["items"]) == 2
    assert served.get("pods?namespace=def")["items"] == []
    page = served.get("pods?namespace=default&limit=1")
    assert (page["remaining"], len(page["items"])) == (1, 1)


@pytest.mark.parametrize(
    "path", ["cluster", "machines", "nodes", "nodes/8x-l4-0", "pods", "pending", "capacity"]
)
def test_an_answer_that_the_client_has_is_not_sent_again(served, path):
    """304 by the entity tag, until something changes."""
    first = served.call(f"/api/v1/{path}")
    tag = first.headers["etag"]
    same = served.call(f"/api/v1/{path}", if_none_match=f'"other", W/{tag}')
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    served.place(1, "u4", "8x-l4-0")
    other = served.call(f"/api/v1/{path}", if_none_match=tag)
    assert (other.status_code, other.headers["etag"] != tag) == (200, True)


def test_the_tag_of_pending_pods_changes_with_each_of_them(served):
    """Their coming and going changes no device, so no generation."""
    tag = served.call("/api/v1/pending").headers["etag"]
    served.now_s = 1020.0
    served.filter(8, "u3", ["dgx-1-v100-0"], affinity="nvlink", policy="required")
    assert served.call("/api/v1/pending", if_none_match=tag).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("nodes/none", 404, "node none is not known"),
        ("pods/default/none", 404, "pod default/none has no GPUs on a node"),
        ("nodes?limit=0", 400, "query parameter limit is '0'"),
        ("nodes?limit=5001", 400, "query parameter limit is '5001'"),
        ("nodes?continue=%FF", 400, "query parameter continue is"),
        ("pods?continue=a", 400, "query parameter continue is"),
    ],
)
def test_errors_are_problem_details(served, path, status, detail):
    """With what is wrong and what is expected."""
    response = served.call(f"/api/v1/{path}")
    assert response.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(response.json())
    assert problem.status == response.status_code == status
    assert detail in problem.detail


def test_the_port_of_its_own_serves_nothing_else(served):
    """Who may forward it reads, and places no pod."""
    assert served.call("/api/v1/nodes", app=served.read_app).json() == served.get("nodes")
    for path in ("/filter", "/bind", "/state", "/metrics"):
        for method in ("GET", "POST", "DELETE"):
            assert served.call(path, method=method, app=served.read_app).status_code in {404, 405}


def test_nothing_there_writes(served):
    """Every route is GET, but for those that take the pod or the question that they answer."""
    described = served.call("/openapi.json", app=served.read_app).json()
    assert described["paths"]
    posted = [path for path, methods in described["paths"].items() if set(methods) != {"get"}]
    assert sorted(posted) == ["/api/v1/explain", "/api/v1/what-if"]


def test_a_machine_shows_its_links_and_where_to_draw_them(served):
    """28 pairs of 8 GPUs, labelled as nvidia-smi does."""
    items = {one["machine"]: one for one in served.get("machines")["items"]}
    v100, l4 = items[V100], items["8x-l4"]
    assert (v100["nodes"], len(v100["links"]), len(v100["scene"]["gpus"])) == (2, 28, 8)
    assert {one["label"] for one in v100["links"]} == {"NV1", "NV2", "SYS"}
    assert {one["label"] for one in l4["links"]} <= {"PIX", "PXB", "PHB", "NODE", "SYS"}
    best = max(one["gbytes_per_s"] for one in v100["links"])
    assert best == v100["best_gbytes_per_s"]["2"]


def test_explain_takes_a_manifest_and_sums_up():
    """For a pod that is in no cluster: on the port of people's own, where the verbs are not."""
    served = ServedReads(engine())
    before = served.get("cluster")["generation"]
    body = json.dumps(pod(4, affinity="nvlink", policy="required")).encode()
    for app in (served.app, served.read_app):
        response = served.call("/api/v1/explain", method="POST", content=body, app=app)
        assert response.status_code == 200, response.text
        assert response.json()["summary"]["n_fit"] == 2
    assert served.get("cluster")["generation"] == before
    assert served.get("pending")["items"] == []


def test_explain_of_something_else_is_a_problem():
    """With what was expected."""
    served = ServedReads(engine())
    response = served.call("/api/v1/explain", method="POST", content=b"[]", app=served.read_app)
    assert response.status_code == 400
    assert "request body is" in response.json()["detail"]


def test_explain_by_name_is_of_pods_that_are_there():
    """Bound and waiting, with what they request."""
    served = ServedReads(engine({"machine": "dgx-1-v100", "count": 1}))
    served.place(4, "u1", "dgx-1-v100-0", affinity="nvlink", policy="required")
    served.filter(8, "u2", ["dgx-1-v100-0"], **{"min-bandwidth": "20.5"})
    bound = served.get("explain/default/pod-u1")
    assert bound["bound"]["has_what_was_planned"]
    wishes = {key: bound["request"][key] for key in ("size_gpus", "affinity", "policy")}
    assert wishes == {"size_gpus": 4, "affinity": "nvlink", "policy": "required"}
    waits = served.get("explain/default/pod-u2")
    assert waits["request"]["min_bandwidth_gbytes_per_s"] == 20.5
    assert waits["unschedulable"]["reason_label"] == "not_enough_free"
    assert served.call("/api/v1/explain/default/other").status_code == 404
