"""Names that running text gives away by its form."""

from __future__ import annotations

import pytest

from kubectl_coterie.bundle.names_in_text import names_in_host, names_in_path, names_in_text

API = ("host", "api.example.com")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(
            'nodes is forbidden: User "jane@example.com" cannot get resource "nodes"',
            {("user", "jane@example.com"), ("user", "jane"), ("host", "example.com")},
            id="a person",
        ),
        pytest.param('User "oidc:jane" can', {("user", "oidc:jane"), ("user", "jane")}, id="OIDC"),
        pytest.param(
            'User "system:serviceaccount:ml:robot" cannot',
            {("namespace", "ml"), ("object", "robot")},
            id="a service account",
        ),
        pytest.param('User \\"system:node:gpu-0\\"', {("node", "gpu-0")}, id="a kubelet"),
        pytest.param(
            'persistentvolumeclaim "a" not found, leases.coordination.k8s.io "b" is, jobs "ml/c"',
            {("object", "a"), ("object", "b"), ("namespace", "ml"), ("object", "c")},
            id="objects in quotes",
        ),
        pytest.param(
            'Back-off pulling image "registry.example/ml/x:1"; nvcr.io/nvidia/x:2',
            {("registry", "registry.example"), ("registry", "ml")},
            id="an image",
        ),
        pytest.param("https://api.example.com:6443/api/v1", {API}, id="a URL"),
        pytest.param("https://jane@api:6443/", {("host", "api")}, id="a URL with a user"),
        pytest.param(
            "lookup api.example.com on 10.96.0.10:53", {API}, id="a name that is not found"
        ),
        pytest.param("dial api.example.com:6443 refused", {API}, id="a host with its port"),
        pytest.param('host "api.example.com"', {API}, id="a host in quotes"),
        pytest.param("E1 schedule_one.go:1104] x", set(), id="a file with its line"),
        pytest.param("http://127.0.0.1:8890 https://[::1]/", set(), id="addresses"),
        pytest.param("https://kubernetes.io/docs", set(), id="a host of everybody's"),
        pytest.param(
            "https://extender.gpu.svc:8443",
            {("object", "extender"), ("namespace", "gpu")},
            id="a Service",
        ),
        pytest.param(
            "mail jane@example.com",
            {("user", "jane@example.com"), ("user", "jane"), ("host", "example.com")},
            id="mail",
        ),
        pytest.param("nothing of anybody", set(), id="none"),
    ],
)
def test_names_are_known_by_what_stands_around_them(text, names):
    """As Kubernetes, its clients and runtimes write them."""
    assert set(names_in_text(text)) == names


def test_an_address_is_no_hosts_name():
    """It is replaced as an address."""
    assert list(names_in_host("10.0.0.1")) == []


def test_of_a_path_what_all_hosts_have_is_no_name():
    """Nor numbers and single letters."""
    assert list(names_in_path("/var/lib/kubelet/acme/7/x/tls.crt")) == [("path", "acme")]
