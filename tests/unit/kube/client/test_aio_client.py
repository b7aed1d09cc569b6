"""The client's asyncio half alone: what is not imported, and that no other importer notices."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType

import pytest

from kube.client import aio_client

HEAVY = ("requests", "requests_oauthlib", "urllib3", "websocket")
LIST_IMPORTED = "import json, sys; print(json.dumps([name for name in {} if name in sys.modules]))"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        pytest.param("import kube.client.transport", [], id="by us alone"),
        pytest.param(
            "import kube.client.transport, kubernetes.client", [], id="a part of it afterwards"
        ),
        pytest.param(
            "import kubernetes, kube.client.transport; kubernetes.client.CoreV1Api",
            ["requests", "requests_oauthlib", "urllib3", "websocket"],
            id="all of it is imported",
        ),
    ],
)
def test_the_other_half_stays_out_unless_it_is_requested(first, expected):
    """It would be 9 MiB on every node."""
    done = subprocess.run(
        [sys.executable, "-c", f"{first}; {LIST_IMPORTED.format(HEAVY)}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == expected


def test_a_package_that_is_not_there_is_left_to_the_import(monkeypatch):
    """Whose message says what is missing; nor is one replaced that is there."""
    register = aio_client.register_package
    register("no_such_package_here")
    register("json.decoder")
    assert "no_such_package_here" not in sys.modules
    there = ModuleType("coterie_there")
    monkeypatch.setitem(sys.modules, "coterie_there", there)
    register("coterie_there")
    assert sys.modules["coterie_there"] is there
