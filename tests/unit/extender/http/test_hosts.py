"""Which hosts the read port answers for."""

from __future__ import annotations

import pytest

from extender.http.hosts import HostCheck
from tests.unit.extender.engines import engine
from tests.unit.extender.read_api.served import ServedReads

NAMES = ("coterie-read-api", "Gpus.Example")


@pytest.fixture(scope="module")
def served() -> ServedReads:
    """An extender with one node."""
    return ServedReads(engine({"machine": "dgx-1-v100", "count": 1}))


def call(served, host, path="/api/v1/cluster"):
    """One request for a host."""
    return served.call(path, app=HostCheck(served.read_app, NAMES), host=host)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8890",
        "10.1.2.3",
        "[::1]:8890",
        "[fd00::1]",
        "localhost:8890",
        "LocalHost",
        "coterie-read-api:8890",
        "gpus.example",
        "gpus.example.:8890",
    ],
)
def test_addresses_localhost_and_configured_names_are_answered(served, host):
    """No site can have the first two as its name; the others are the setting's."""
    assert call(served, host).status_code == 200


@pytest.mark.parametrize(
    "host", ["attacker.example:8890", "127.0.0.1.attacker.example", "localhost.attacker.example"]
)
@pytest.mark.parametrize("path", ["/api/v1/cluster", "/api/v1/changes", "/ui/", "/docs"])
def test_another_name_is_refused_with_a_sentence(served, host, path):
    """A name that a hostile site had resolved to the loopback reads nothing."""
    response = call(served, host, path)
    assert response.status_code == 421
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["title"] == "Misdirected Request"
    assert body["detail"] == (
        f"the request is for host '{host.partition(':')[0]}', expected an address, localhost or "
        "one of setting read_hosts; a proxy that keeps its callers' Host needs that name there"
    )


@pytest.mark.parametrize("host", ["", "[", "[]:1", ":8890"])
def test_no_host_is_no_address(served, host):
    """Nor one that is broken."""
    assert call(served, host).status_code == 421
