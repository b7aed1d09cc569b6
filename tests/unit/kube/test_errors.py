"""What the API server's refusals become."""

from __future__ import annotations

import json

import pytest

from kube.errors import (
    MAX_DETAIL,
    Conflict,
    Gone,
    KubeError,
    Malformed,
    NotFound,
    Unanswered,
    Unreachable,
    cut,
    error_of,
    refusal,
)

STATUS = {
    "kind": "Status",
    "status": "Failure",
    "reason": "Invalid",
    "message": "Pod is invalid",
    "code": 422,
    "details": {
        "causes": [{"field": "metadata.uid"}, {"message": "no field"}, 7, {"field": "metadata.uid"}]
    },
}


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (Unreachable(0, "Unreachable", "connection refused"), True),
        (Unanswered(0, "Timeout", ""), True),
        (Unanswered(0, "ConnectionLost", ""), True),
        (KubeError(503, "ServiceUnavailable", ""), True),
        (KubeError(429, "TooManyRequests", ""), True),
        (Unreachable(0, "NotTrusted", "self-signed"), False),
        (Unreachable(0, "NoCredentials", "no token"), False),
        (Malformed(0, "Malformed", "no JSON"), False),
        (KubeError(401, "Unauthorized", ""), False),
        (KubeError(403, "Forbidden", ""), False),
        (Gone(410, "Expired", ""), False),
    ],
    ids=str,
)
def test_an_outage_is_the_servers(error, is_outage):
    """What another client of the same server would meet as well."""
    assert error.is_outage is is_outage


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFound), (409, Conflict), (410, Gone), (422, KubeError), (503, KubeError)],
)
def test_a_status_has_its_own_class(status, kind):
    """Callers distinguish refusals by class, without knowing HTTP."""
    assert type(refusal(status, "", b"")) is kind


@pytest.mark.parametrize(
    ("body", "reason", "detail"),
    [
        pytest.param(json.dumps(STATUS).encode(), "Invalid", "Pod is invalid", id="a Status"),
        pytest.param(b"<html>\n Bad  Gateway", "phrase", "<html> Bad Gateway", id="a proxy's page"),
        pytest.param(b"", "phrase", "", id="nothing"),
        pytest.param(b"[1]", "phrase", "[1]", id="JSON of another shape"),
        pytest.param(b'{"reason":7}', "phrase", '{"reason":7}', id="a reason that is no text"),
        pytest.param(b"[" * 100_000, "phrase", cut("[" * 100_000), id="JSON without an end"),
        pytest.param(b"\xff\xfe", "phrase", "��", id="no text at all"),
    ],
)
def test_any_body_becomes_one_line(body, reason, detail):
    """Whatever stands between us and the API server may have written the body."""
    error = refusal(502, "phrase", body)
    assert (error.status, error.reason, error.detail) == (502, reason, detail)


def test_the_fields_at_fault_are_kept():
    """The field distinguishes a pod of another uid from a bad annotation."""
    assert refusal(422, "", json.dumps(STATUS).encode()).fields == ("metadata.uid", "")
    assert refusal(422, "", b'{"details":{"causes":7}}').fields == ()
    assert refusal(422, "", b'{"details":7}').fields == ()


def test_a_long_body_is_cut():
    """A proxy's error page must not fill the log."""
    assert len(refusal(500, "", b"x" * 10_000).detail) == MAX_DETAIL


def test_a_status_inside_a_watch_becomes_the_same_error():
    """The API server ends a watch with a Status of its own, under HTTP 200."""
    error = error_of({"code": 410, "reason": "Expired", "message": "too old"})
    assert (type(error), error.reason, error.detail) == (Gone, "Expired", "too old")
    assert (error_of({}).status, error_of({"code": "x"}).status) == (0, 0)


@pytest.mark.parametrize(
    ("error", "is_transient"),
    [
        (Unreachable(0, "Unreachable", ""), True),
        (Unanswered(0, "Timeout", ""), True),
        (refusal(429, "", b""), True),
        (refusal(503, "", b""), True),
        (refusal(403, "", b""), False),
        (refusal(409, "", b""), False),
    ],
)
def test_what_may_pass_by_itself(error, is_transient):
    """Only these are worth the same request again."""
    assert error.is_transient == is_transient


def test_an_error_reads_as_one_line():
    """Status where there is one, reason always, detail if any."""
    assert str(refusal(409, "Conflict", b"")) == "409 Conflict"
    assert str(Unreachable(0, "Unreachable", "refused")) == "Unreachable: refused"
    assert refusal(429, "", b"", retry_after_s=2.0).retry_after_s == 2.0
