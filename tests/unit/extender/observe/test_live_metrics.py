"""What a live extender exports of its watches, from before the first list on, and of its files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509

from extender.watch import InformerSet
from kube.watch import Reflector, watches
from tests.live_metrics import idle_metrics
from tests.unit.extender.pki import authority, issue

UNIX_S = 1_700_000_000.0
MONOTONIC_S = 500.0


def exported(*of: Any) -> dict[str, float]:
    """The time of the last contact by watch, as it is scraped."""
    nothing: Any = None
    feed = InformerSet(nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    feed.watches, feed.beside = of[:1], of[1:]
    metrics = replace(
        idle_metrics(), feed=feed, timer=lambda: MONOTONIC_S, unix_time=lambda: UNIX_S
    )
    (family,) = [one for one in metrics.collect() if "last_heard" in one.name]
    return {sample.labels["source"]: sample.value for sample in family.samples}


def test_a_watch_that_never_completed_its_list_is_as_old_as_can_be():
    """Without a sample an alert on its age could not fire in the worst outage of all."""
    nothing: Any = None
    never = Reflector(nothing, watches.nodes(), nothing)
    assert exported(never) == {"nodes": 0.0}


def test_a_watch_shows_when_it_last_heard_of_the_server():
    """In seconds since 1970, though the watch itself counts by the monotonic clock."""
    nothing: Any = None
    heard = Reflector(nothing, watches.nominated_pods(), nothing)
    heard.observed_at_s = MONOTONIC_S - 30.0
    assert exported(heard) == {"nominated_pods": pytest.approx(UNIX_S - 30.0)}


def test_watches_that_hold_nothing_up_are_shown_too():
    """Groups wait for them, and an alert names them."""
    nothing: Any = None
    of: list[Any] = [watches.nodes(), watches.pending_pods("gpu")]
    made = [Reflector(nothing, one, nothing) for one in of]
    assert exported(*made) == {"nodes": 0.0, "pending_pods": 0.0}


def test_the_end_of_each_certificate_is_known_before_it_comes(tmp_path):
    """All replicas have certificates of one day, and no pod with GPUs is placed after their end."""
    files = issue(tmp_path, authority())
    shown = {"serving": files.cert, "api_server": tmp_path / "missing"}
    metrics = replace(idle_metrics(), certificates=lambda: shown)
    (family,) = [one for one in metrics.collect() if "not_after" in one.name]
    ends = {sample.labels["certificate"]: sample.value for sample in family.samples}
    certificate = x509.load_pem_x509_certificate(files.cert.read_bytes())
    assert ends == {
        "serving": certificate.not_valid_after_utc.timestamp(),
        "api_server": 0.0,
    }
