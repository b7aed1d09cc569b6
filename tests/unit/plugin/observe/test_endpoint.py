"""What a probe and a scraper read from the plugin, over real HTTP."""

from __future__ import annotations

import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from kube.errors import SettingsError
from plugin.observe import StatusEndpoint, serving


def endpoint(live="", ready=""):
    """An endpoint with a counter, whose checks say these."""
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    return StatusEndpoint(lambda: live, lambda: ready, registry)


@pytest.mark.parametrize(
    ("path", "made", "status", "text"),
    [
        pytest.param("/metrics", endpoint(), 200, "things_total 3.0", id="metrics"),
        pytest.param("/livez", endpoint(ready="no kubelet"), 200, "ok", id="lives"),
        pytest.param("/livez", endpoint(live="hangs"), 503, "hangs", id="hangs"),
        pytest.param("/readyz", endpoint(live="hangs"), 200, "ok", id="ready"),
        pytest.param("/readyz", endpoint(ready="no kubelet"), 503, "no kubelet", id="not ready"),
        pytest.param("/", endpoint(), 404, "expected /metrics, /livez or /readyz", id="else"),
    ],
)
def test_each_path_says_its_own(path, made, status, text):
    """A live plugin that is not ready must not be killed, nor one that hangs be kept."""
    with serving(made, address="127.0.0.1", port=0) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60)
    assert answer.status_code == status
    assert text in answer.text


def test_it_listens_on_ipv6_too():
    """Clusters of IPv6 alone have no other address to scrape."""
    with serving(endpoint(), address="::1", port=0) as port:
        assert httpx.get(f"http://[::1]:{port}/livez", timeout=60).status_code == 200


def test_a_port_in_use_is_said():
    """Before anything else starts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: Address"),
            serving(endpoint(), address="127.0.0.1", port=port),
        ):
            pass


def test_nothing_is_left_behind():
    """The port is free again, and no thread serves it."""
    with serving(endpoint(), address="127.0.0.1", port=0) as port:
        pass
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/livez")
