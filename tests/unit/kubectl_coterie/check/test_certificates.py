"""Certificates and when they end."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from kubectl_coterie.check.certificates import check_certificates
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import (
    CONFIG_MAP,
    EXTENDER,
    NOW_S,
    SCHEDULER,
    config_map,
    look,
    no_right,
    states,
)

METRIC = "coterie_extender_certificate_not_after_timestamp_seconds"
DAY_S = 24 * 3600


def metrics(*ends):
    """The extender's metrics with certificates that end then."""
    lines = [f'{METRIC}{{certificate="serving"}} {end!r}' for end in ends]
    return {EXTENDER.where: Read("\n".join(["# HELP other", *lines, "other 1.0"]))}


@pytest.mark.parametrize(
    ("end_s", "state", "words"),
    [
        (NOW_S + 15 * DAY_S, "ok", "ends on 2027-01-30"),
        (NOW_S + 13 * DAY_S, "warning", "ends on 2027-01-28"),
        (NOW_S - 1, "failed", "ended on 2027-01-15"),
        (0.0, "failed", "cannot be read"),
    ],
)
def test_the_extenders_certificates_are_judged_by_their_end(end_s, state, words):
    """Two weeks before, as the alert does."""
    (finding,) = check_certificates(look(metrics=metrics(end_s)))
    assert finding.state.value == state
    assert words in finding.about
    assert "'serving' of the extender in coterie-system/coterie-scheduler-a" in finding.about


def test_metrics_that_cannot_be_read_are_said():
    """As without the right to forward a port."""
    seen = look(metrics={EXTENDER.where: no_right("pods/portforward")})
    (finding,) = check_certificates(seen)
    assert finding.state.value == "not known"
    assert no_right("pods/portforward").missing in finding.about


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "ok", "shows no certificate"),
        ({"metrics": {}}, "not known", "no extender's metrics"),
        ({"metrics": {}, "programs": no_right("pods")}, "not known", "cannot list"),
    ],
)
def test_no_certificate_is_right_on_loopback(changes, state, words):
    """The second scheduler calls its extender in the same pod."""
    (finding,) = check_certificates(look(**changes))
    assert finding.state.value == state
    assert words in finding.about


def test_certificates_in_the_configuration_are_judged():
    """Base64 of PEM, as kube-scheduler takes it."""
    tls = {"caData": base64.b64encode(b"no PEM").decode(), "certData": "%"}
    seen = look(config_maps={CONFIG_MAP: config_map(tlsConfig=tls)})
    where = f"ConfigMap {CONFIG_MAP} (scheduler-config.yaml)"
    assert states(check_certificates(seen)) == [
        ("failed", f"caData in {where} cannot be read"),
        ("failed", f"certData in {where} cannot be read"),
    ]


def test_the_schedulers_own_is_not_read():
    """It is in a Secret with its key; the finding says how to look."""
    scheduler = replace(SCHEDULER, secrets=("coterie-scheduler-tls", "token"))
    (finding,) = check_certificates(look(programs=Read((EXTENDER, scheduler))))
    assert finding.state.value == "not known"
    assert "kubectl -n coterie-system get secret coterie-scheduler-tls" in finding.todo
