"""`explain` and `what-if`: what they read and post, and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from kubectl_coterie import command_line
from tests.integration.kube.forwarding_server import ForwardingServer
from tests.integration.kubectl_coterie.read_api_server import ReadApiServer
from tests.programs import called

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
SUMMARY = {
    "n_nodes": 1,
    "n_fit": 0,
    "groups": [],
    "try": None,
    "runner_up": None,
    "runner_up_set": None,
}
REQUEST = {
    "size_gpus": 4,
    "containers": [{"name": "c", "size": 4}],
    "affinity": "any",
    "policy": "preferred",
    "min_bandwidth_gbytes_per_s": None,
    "nic": "unset",
}


def explanation(pod: str = "ml/p", **changed: Any) -> Any:
    """Of a pod that fits nowhere."""
    return {
        "pod": pod,
        "warnings": [],
        "request": REQUEST,
        "summary": SUMMARY,
        "nodes": [],
    } | changed


def posted_name(request: web.Request) -> web.Response:
    """Explains a pod that was posted."""
    assert request.method == "POST"
    return web.json_response(explanation())


def test_a_pod_of_the_cluster(serve):
    """Named as for kubectl, in the namespace of -n; `default` without one."""
    call = serve(
        explain__ml__p=explanation(unschedulable={"since_s": 0.0}),
        explain__default__p=explanation("default/p", request=None),
    )
    assert call("explain", "p", "-n", "ml").stdout.startswith("p  Pending ")
    assert call("explain", "pod/p").stdout == "default/p requests no GPU that Coterie places.\n"
    assert json.loads(call("explain", "p", "-n", "ml", "-o", "json").stdout)["pod"] == "ml/p"
    assert yaml.safe_load(call("explain", "p", "-n", "ml", "-o", "yaml").stdout)["pod"] == "ml/p"
    assert call("explain", "nope", "-n", "ml", code=1).stderr == (
        "error: pod 'nope' is not in namespace 'ml': `kubectl coterie pods -A` lists those that "
        "the extender knows, -n names another namespace\n"
    )


def test_a_placed_pod_that_has_other_gpus_than_planned(serve):
    """Indices of the plan are those of its node."""
    bound = {
        "node": "n",
        "machine": "m",
        "plan": "{}",
        "has_what_was_planned": False,
        "containers": None,
        "could_have": None,
        "runner_up_set": None,
    }
    placed = {
        "node": "n",
        "state": "held",
        "gpus": [0, 1],
        "gbytes_per_s": 24.0,
        "share": 1.0,
        "limited_by": None,
        "containers": [],
        "as_planned": False,
        "planned_ids": ["c", "b"],
    }
    call = serve(
        explain__ml__p=explanation(bound=bound),
        pods__ml__p=placed,
        nodes__n={"gpus": [{"id": one} for one in "abc"]},
    )
    assert call("explain", "p", "-n", "ml").stdout.splitlines()[1:] == [
        "On n, m",
        "Has {0,1}, 24 GB/s (100 % of its best)",
        "The kubelet gave other GPUs than planned: planned was {1,2}.",
    ]
    less = serve(explain__ml__p=explanation(bound=bound), pods__ml__p=placed)
    assert less("explain", "p", "-n", "ml").stdout.endswith("other GPUs than planned.\n")


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({}, "; its schedulerName is default-scheduler, which has not tried it yet."),
        (
            {
                "spec": {"schedulerName": "gpu"},
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "False", "message": "no"},
                        {"type": "PodScheduled", "status": "False", "message": "0/2 nodes"},
                    ]
                },
            },
            "; its schedulerName is gpu, which says: 0/2 nodes.",
        ),
        (None, "about this pod. Its own count"),
        ("forbidden", "about this pod. Its own count"),
    ],
    ids=["no schedulerName", "rejected before Coterie", "gone", "a user without the right"],
)
def test_a_pod_that_the_extender_has_not_rejected(beside, monkeypatch, tmp_path, pod, said):
    """The API server knows which scheduler it has, and what that says."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    read_api = beside(ReadApiServer(**{"explain/ml/p": explanation()}))
    kube = ForwardingServer(read_api.port)

    def listed(request: web.Request, _body: bytes) -> web.Response:
        assert request.query["fieldSelector"] == "metadata.name=p"
        if pod == "forbidden":
            return web.json_response({"code": 403, "message": "no"}, status=403)
        items = [] if pod is None else [pod]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    kube.answer("GET", "/api/v1/namespaces/ml/pods", listed)
    beside(kube)
    given = ["--kubeconfig", str(kube.kubeconfig(tmp_path)), "--extender-pod", "s/extender"]
    done = called(command_line.main, "explain", "p", "-n", "ml", *given)
    assert done.exit_code == 0, done.output
    assert said in done.stdout
    assert kube.forwarded


def test_a_manifest_with_another_resource(serve, tmp_path):
    """A name that is misspelled, as often as not."""
    call = serve(explain=explanation("default/p", request=None))
    file, limits = tmp_path / "pod.json", {"nvidia.com/gpus": "8", "rdma/hca": "1", "cpu": "4"}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"limits": limits}}]}}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod"} | pod))
    assert call("explain", "-f", str(file)).stdout == (
        "default/p requests no GPU that Coterie places, only nvidia.com/gpus and rdma/hca; "
        "nearest: nvidia.com/gpu.\n"
    )


def test_every_example_of_the_documentation(serve):
    """A title for each pod where there are several, or several alike."""
    call = serve(explain=posted_name)
    for file in sorted(EXAMPLES.glob("*.yaml")):
        assert "p  Would wait   4 GPUs" in call("explain", "-f", str(file)).stdout
    titles = call("explain", "-f", str(EXAMPLES / "raycluster.yaml")).stdout.split("\n\n")
    assert [title.partition("\n")[0] for title in titles] == [
        "RayCluster ray head, 1 pod:",
        "RayCluster ray gpu, 2 pods:",
    ]
    data = call("explain", "-f", str(EXAMPLES / "raycluster.yaml"), "-o", "json").stdout
    assert len(json.loads(data)["items"]) == 2
    assert json.loads(call.server.posted[0])["metadata"]["namespace"] == "default"


def test_a_file_with_other_objects(serve, tmp_path):
    """They are named on standard error; a DaemonSet has no count; a fault names the object."""
    file = tmp_path / "f.yaml"
    file.write_text(
        "{kind: Service, metadata: {name: s}}\n---\n"
        "{kind: DaemonSet, metadata: {name: d}, spec: {template: {spec: {}}}}"
    )
    call = serve(explain=posted_name)
    done = call("explain", "-f", str(file), "-n", "ml")
    assert done.stderr == "Service s is left out: no pods of its kind are known.\n"
    assert done.stdout.startswith("DaemonSet d, a pod on each node:\n")
    refusing = serve()
    assert refusing("explain", "-f", str(file), code=1).stderr.endswith(
        "error: DaemonSet d: explain is not known\n"
    )


def of_group(size: int | None, n_missing: int, n_bound: int = 0) -> Any:
    """The group in an explanation."""
    return {
        "name": "train",
        "size": size,
        "n_here": n_bound,
        "n_bound": n_bound,
        "n_missing": n_missing,
        "first_since_s": None,
        "reason": None,
        "level": None,
        "domain": None,
        "gbytes_per_s": None,
        "members": [],
    }


@pytest.mark.parametrize(
    ("group", "is_warned"),
    [
        (of_group(5, 5), True),
        (of_group(1000, 992), True),
        (of_group(4, 4), False),
        (of_group(5, 4), False),
        (of_group(9, 6, n_bound=3), False),
        (of_group(None, 0), False),
    ],
)
def test_a_file_that_makes_too_few_members_is_warned_about(serve, group, is_warned):
    """The job would wait for ever, and nothing else compares the two figures."""
    call = serve(explain=explanation("ml/p", group=group))
    file = str(EXAMPLES / "indexed-job-group.yaml")
    warning = (
        f"this file makes 4 of the {group['n_missing']:,} members that group train lacks: none "
        "starts before others bring the rest"
    )
    shown = call("explain", "-f", file).stdout
    assert shown.count("Warning") == is_warned
    assert (f"Warning: {warning}" in shown) is is_warned
    data = json.loads(call("explain", "-f", file, "-o", "json").stdout)
    assert data["warnings"] == ([warning] if is_warned else [])


@pytest.mark.parametrize(
    ("name", "is_warned"),
    [
        pytest.param("jobset-group", True, id="two Jobs of a JobSet"),
        pytest.param(
            "indexed-job-group", False, id="one Job, which has more members than the size"
        ),
        pytest.param("leaderworkerset-group", False, id="replicas, each a group of its own"),
    ],
)
def test_a_file_whose_jobs_share_a_group_is_warned_about(serve, tmp_path, name, is_warned):
    """A part of each would start as a whole, and the others would wait for GPUs that they hold."""
    text = (EXAMPLES / f"{name}.yaml").read_text()
    file = tmp_path / "f.yaml"
    text = text.replace("replicas: 1", "replicas: 2")
    file.write_text(re.sub(r'group-size: "[24]"', 'group-size: "2"', text))
    shown = serve(explain=explanation("ml/p", group=of_group(2, 2)))("explain", "-f", str(file))
    said = "this file makes 4 members of group train, which starts with 2, whichever these are"
    assert (said in shown.stdout) is is_warned
    file.write_text((EXAMPLES / f"{name}.yaml").read_text())  # applied, so that three are here
    shown = serve(explain=explanation("ml/p", group=of_group(4, 1)))("explain", "-f", str(file))
    assert "whichever these are" not in shown.stdout


@pytest.mark.parametrize(
    ("first", "sizes"),
    [('group-size: "3"', "3 and 4"), ('other: "4"', "4 and none"), ('group-size: "04"', "")],
)
def test_a_file_whose_pods_state_different_sizes_is_warned_about(serve, tmp_path, first, sizes):
    """Of a group that never starts."""
    text = (EXAMPLES / "pytorchjob-group.yaml").read_text()
    file = tmp_path / "f.yaml"
    file.write_text(re.sub(r'(?<=coterie.gpu/)group-size: "4"', first, text, count=1))
    groups = iter([of_group(4 if "size" in first else None, 3), of_group(4, 3)])
    warning = (
        f"pods of this file state different sizes of group train, so that none starts: {sizes}"
    )
    shown = serve(explain=lambda _: web.json_response(explanation("ml/p", group=next(groups))))(
        "explain", "-f", str(file)
    ).stdout
    assert shown.count("Warning: pods of this file") == bool(sizes)
    assert (f"Warning: {warning}\n" in shown) is bool(sizes)


STATEFUL = """
kind: StatefulSet
metadata: {name: s}
spec:
  replicas: 4
  template:
    metadata: {annotations: {coterie.gpu/group: g, coterie.gpu/group-size: "4"}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""


def test_a_controller_that_creates_pods_one_by_one_is_warned_about(serve, tmp_path):
    """In both commands, and in data: the group waits for members that never come."""
    file = tmp_path / "f.yaml"
    file.write_text(STATEFUL)
    call = serve(explain=posted_name, **{"what-if": ANSWER})
    warning = (
        "annotation coterie.gpu/group-size is '4', and StatefulSet s creates its pods one after "
        "the other (spec.podManagementPolicy is not Parallel): the group may never be complete"
    )
    assert f"Warning: {warning}" in call("explain", "-f", str(file)).stdout
    assert json.loads(call("explain", "-f", str(file), "-o", "json").stdout)["warnings"] == [
        warning
    ]
    assert call("what-if", "-f", str(file)).stderr == f"Warning: {warning}\n"
    file.write_text(STATEFUL.replace("replicas: 4", "podManagementPolicy: Parallel"))
    assert "Warning" not in call("explain", "-f", str(file)).stdout


JOB_SET = """
kind: JobSet
metadata: {name: s}
spec:
  replicatedJobs:
  - {name: store, template: {spec: {template: {spec: {containers: [{name: c}]}}}}}
  - name: workers
    dependsOn: [{name: store, status: Ready}]
    template:
      spec:
        parallelism: 4
        completions: 4
        template:
          metadata: {annotations: {coterie.gpu/group: g, coterie.gpu/group-size: "4"}}
          spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""


NO_MEMBER = "{spec: {containers: [{name: c}]}}"
OF_NO_GROUP = "{spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
MEMBER, OF_ANOTHER = (
    f"{{metadata: {{annotations: {{coterie.gpu/group: {name}, coterie.gpu/group-size: '4'}}}}, "
    f"{OF_NO_GROUP[1:]}"
    for name in "gh"
)


@pytest.mark.parametrize(
    ("store", "n_warnings"),
    [
        pytest.param(NO_MEMBER, 0, id="without GPUs"),
        pytest.param(OF_NO_GROUP, 0, id="with one, in no group"),
        pytest.param(OF_ANOTHER, 0, id="of another group"),
        pytest.param(MEMBER, 1, id="a member: one warning is enough"),
    ],
)
def test_what_comes_before_members_is_warned_about_where_it_is_one(
    serve, tmp_path, store, n_warnings
):
    """Members of one template come together, whatever comes before them."""
    file = tmp_path / "f.yaml"
    file.write_text(JOB_SET.replace(NO_MEMBER, store))
    call = serve(explain=posted_name, **{"what-if": ANSWER})
    assert call("what-if", "-f", str(file)).stderr.count("Warning: ") == n_warnings


def test_two_templates_of_a_group_are_found_behind_others(serve, tmp_path):
    """The first pod with GPUs need not be a member."""
    file = tmp_path / "f.yaml"
    before = f"  - {{name: prep, template: {{spec: {{template: {OF_NO_GROUP}}}}}}}\n"
    jobs = "  replicatedJobs:\n"
    text = JOB_SET.replace(NO_MEMBER, MEMBER).replace(jobs, jobs + before)
    file.write_text(text)
    call = serve(explain=posted_name, **{"what-if": ANSWER})
    assert call("what-if", "-f", str(file)).stderr.count("Warning: ") == 1


def test_one_pod_of_a_controller_waits_for_none_of_its_own(serve, tmp_path):
    """A StatefulSet of one replica is one member of a group of several."""
    file = tmp_path / "f.yaml"
    file.write_text(STATEFUL.replace("replicas: 4", "replicas: 1"))
    call = serve(explain=posted_name, **{"what-if": ANSWER})
    assert "Warning" not in call("what-if", "-f", str(file)).stderr


@pytest.mark.parametrize("words", [(), ("p", "-f", "f")])
def test_explain_needs_one_of_both(serve, words):
    """One sentence, and where to find pods."""
    assert serve()("explain", *words, code=1).stderr == (
        "error: explain needs either POD or -f FILE; `kubectl coterie pods` lists pods\n"
    )


ANSWER = {
    "added": [],
    "drained": ["gpu-1"],
    "placements": [],
    "before": [],
    "after": [],
    "warnings": [],
    "not_considered": ["CPU"],
}


def test_what_if(serve):
    """The question as the extender takes it, and its answer as lines or data."""
    call = serve(**{"what-if": ANSWER})
    file = str(EXAMPLES / "raycluster.yaml")
    done = call("what-if", "-f", file, "--drain", "node/gpu-1", "--add", "m=2", "--add", "k")
    assert done.stdout == "Drained gpu-1\n\nNot considered:\n  CPU\n"
    assert done.stderr == "RayCluster ray head is left out: it requests no GPU.\n"
    asked = json.loads(call.server.posted[0])
    assert asked["drain"] == ["gpu-1"]
    assert asked["add"] == [{"machine": "m", "count": 2}, {"machine": "k", "count": 1}]
    (pods,) = asked["pods"]
    assert (pods["count"], pods["manifest"]["kind"]) == (2, "Pod")
    assert json.loads(call("what-if", "--add", "m", "-o", "json").stdout) == ANSWER
    call("what-if", "-f", file, "--replicas", "7")
    assert json.loads(call.server.posted[-1])["pods"][0]["count"] == 7


GPU = "{containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}"


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        ((), "", "what-if needs at least one of -f FILE, --drain NODE and --add MACHINE"),
        (("--add", "m", "--replicas", "2"), "", "--replicas is how many pods of -f FILE there are"),
        (("-f", "F", "--replicas", "0"), "", "--replicas is 0, expected at least 1"),
        (("--add", "m=0"), "", "--add is 'm=0', expected MACHINE or MACHINE=N with N of at least"),
        (("--add", "=2"), "", "--add is '=2', expected MACHINE"),
        (("-f", "F"), "{metadata: {name: p}}", "Pod p requests no GPU: nothing would be placed"),
        (
            ("-f", "F", "--replicas", "2"),
            f"{{spec: {GPU}}}\n---\n{{spec: {GPU}}}",
            "--replicas is for one pod, and F has 2: leave it out",
        ),
        (
            ("-f", "F"),
            f"{{kind: DaemonSet, metadata: {{name: d}}, spec: {{template: {{spec: {GPU}}}}}}}",
            "DaemonSet d has a pod on each node: say how many with --replicas",
        ),
        (
            ("-f", "F"),
            f"{{kind: Deployment, spec: {{replicas: 0, template: {{spec: {GPU}}}}}}}",
            "Deployment has 0 pods now: say how many with --replicas",
        ),
    ],
)
def test_what_if_refuses(serve, tmp_path, monkeypatch, words, text, message):
    """One sentence with what to give."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "F").write_text(text)
    assert serve()("what-if", *words, code=1).stderr.startswith(f"error: {message}")


def test_other_objects_are_left_out(serve, tmp_path):
    """As of explain."""
    file = tmp_path / "f.yaml"
    file.write_text(f"{{kind: Service, metadata: {{name: s}}}}\n---\n{{spec: {GPU}}}")
    done = serve(**{"what-if": ANSWER})("what-if", "-f", str(file))
    assert done.stderr == "Service s is left out: no pods of its kind are known.\n"
