"""What the options of a command say of the cluster."""

import pytest

from kubectl_coterie.commands.session_of import options_of, session_of
from kubectl_coterie.options import make_parser
from topology.cli.program import EXTENDER_URL

URL = "http://127.0.0.1:8888"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([], URL, id="the variable"),
        pytest.param(["--extender-url", "http://other:1"], "http://other:1", id="the flag first"),
        pytest.param(["--extender-namespace", "gpu"], None, id="another namespace"),
        pytest.param(["--extender-pod", "gpu/x"], None, id="a pod"),
        pytest.param(["--context", "other"], None, id="another cluster"),
        pytest.param(["--kubeconfig", "other"], None, id="another kubeconfig"),
    ],
)
def test_the_extenders_address_may_be_a_variable(words, expected, monkeypatch, capsys):
    """So that it is said once for each of many commands, and any flag counts before it."""
    monkeypatch.setenv(EXTENDER_URL, URL)
    assert options_of(make_parser().parse_args(["pods", *words])).extender_url == expected
    session_of(make_parser().parse_args(["pods", *words]))
    assert capsys.readouterr().err == ("" if words else f"extender: {URL} ({EXTENDER_URL})\n")
    monkeypatch.setenv(EXTENDER_URL, "")
    assert options_of(make_parser().parse_args(["pods"])).extender_url is None
