"""The kubelet's API: what is requested, what is read, and what a refusal says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kube.client import Endpoint, KubeletClient, kubelet_endpoint
from kube.client.faults import NOT_TRUSTED
from kube.errors import KubeError, Malformed, NotFound, Unanswered, Unreachable, refusal
from tests.unit.kube.requesters import ScriptedRequester
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.topology_manager import TopologyManager


def sent(call, *answers):
    """What a call returned, and the request that it made."""
    requester = ScriptedRequester(*answers)
    value = asyncio.run(call(KubeletClient(requester, timeout_s=5.0)))
    return value, requester.requests[0]


def configuration(**fields):
    """The kubelet's answer to /configz (1.36.3, with a few of its fields)."""
    return json.dumps(
        {
            "kubeletconfig": {
                "kind": "KubeletConfiguration",
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "enableServer": True,
                "cgroupDriver": "systemd",
                **fields,
            }
        }
    ).encode()


def test_pods_are_handed_on_as_they_came():
    """Reading them is the plugin's; each request has its own deadline."""
    body, request = sent(lambda it: it.pods(), b"anything")
    assert body == b"anything"
    assert (request.method, request.path, request.timeout_s) == ("GET", "/pods", 5.0)
    _, request = sent(lambda it: it.pods(timeout_s=0.7), b"")
    assert request.timeout_s == 0.7


@pytest.mark.parametrize("policy", TopologyManagerPolicy)
@pytest.mark.parametrize("scope", TopologyManagerScope)
def test_topology_manager_is_read_from_the_configuration(policy, scope):
    """The kubelet's own words."""
    body = configuration(topologyManagerPolicy=policy.value, topologyManagerScope=scope.value)
    found, request = sent(lambda it: it.topology_manager(timeout_s=0.7), body)
    assert found == TopologyManager(policy, scope)
    assert (request.method, request.path, request.timeout_s) == ("GET", "/configz", 0.7)


GOOD = {"topologyManagerPolicy": "none", "topologyManagerScope": "container"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"{", "expected JSON", id="no JSON"),
        pytest.param(b"{}", "topologyManagerPolicy is ''", id="no configuration"),
        pytest.param(b'{"kubeletconfig":7}', "kubeletconfig is 7", id="configuration"),
        pytest.param(
            configuration(**GOOD | {"topologyManagerPolicy": "strict"}),
            "topologyManagerPolicy is 'strict', expected one of: none, best-effort, restricted, "
            "single-numa-node",
            id="a policy of later",
        ),
        pytest.param(configuration(**GOOD | {"topologyManagerScope": 7}), "Scope is 7", id="scope"),
    ],
)
def test_a_configuration_that_is_not_understood_is_malformed(body, expected):
    """Taken for `none`, it would let plans be made that the kubelet refuses."""
    with pytest.raises(Malformed) as caught:
        sent(lambda it: it.topology_manager(), body)
    assert expected in caught.value.detail


@pytest.mark.parametrize(
    ("call", "path", "right"),
    [
        (lambda it: it.pods(), "/pods", "nodes/pods"),
        (lambda it: it.topology_manager(), "/configz", "nodes/configz"),
    ],
)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            refusal(403, "Forbidden", b"Forbidden (user=u, verb=get, resource=nodes)"),
            "needs verb get on {right}, a right that kubelets know from Kubernetes 1.33 on",
            id="forbidden",
        ),
        pytest.param(
            refusal(401, "Unauthorized", b"Unauthorized"),
            "must verify tokens with the API server (authentication.webhook.enabled)",
            id="unauthorized",
        ),
        pytest.param(
            Unreachable(0, NOT_TRUSTED, "self-signed"),
            "its certificate is not trusted: set the CA file that verifies it",
            id="not trusted",
        ),
        pytest.param(refusal(404, "Not Found", b""), "enableDebuggingHandlers", id="not served"),
    ],
)
def test_a_refusal_says_what_is_missing(call, path, right, error, expected):
    """Which right, which setting; kind, status and the kubelet's own words stay."""
    with pytest.raises(KubeError) as caught:
        sent(call, error)
    found = caught.value
    assert (type(found), found.status, found.reason) == (type(error), error.status, error.reason)
    assert found.detail.startswith(f"kubelet's {path}: ")
    assert expected.format(right=right) in found.detail
    assert found.detail.endswith(f"({error.detail})")
    assert found.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        Unreachable(0, "Unreachable", "refused"),
        Unanswered(0, "Timeout", "TimeoutError"),
        refusal(503, "Busy", b""),
    ],
    ids=str,
)
def test_other_errors_are_as_they_were(error):
    """There is no advice for them."""
    with pytest.raises(KubeError) as caught:
        sent(lambda it: it.pods(), error)
    assert caught.value is error


def test_absence_is_no_value():
    """A kubelet always has pods to list, if none: 404 is an error."""
    with pytest.raises(NotFound):
        sent(lambda it: it.pods(), refusal(404, "Not Found", b""))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("10.0.0.7", "https://10.0.0.7:10250"),
        ("fd00::7", "https://[fd00::7]:10250"),
        ("node-0", "https://node-0:10250"),
    ],
)
def test_the_endpoint_is_the_nodes(host, url):
    """Addresses of both families, and names."""
    ca = Path("/ca.crt")
    found = kubelet_endpoint(host, ca_file=ca, server_name="node-0", is_verified=False)
    assert found == Endpoint(url, ca, "node-0", is_verified=False)
    assert kubelet_endpoint(host, port=7).url.endswith(":7")
