"""Memory that is given back: less is resident, and other C libraries do not mind."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from unittest.mock import Mock

import kubernetes
import pytest

from plugin.memory import give_back, skip_synchronous_client

PROGRAM = """
import resource
from plugin.memory import give_back

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

kept = [bytes(20_000) for _ in range(2000)]
last = bytes(20_000)  # at the heap's end, so that the C library gives nothing back by itself
kept.clear()
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_freed_memory_leaves_the_process():
    """In a process of its own: this one's heap is the test run's."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) > 10_000_000


FROZEN = """
import gc
from plugin.memory import give_back

before = len(gc.get_objects())
give_back()
print(before > 1000, len(gc.get_objects()) < 100)
"""


def test_the_collector_leaves_alone_what_lasts():
    """In a process of its own, as above."""
    done = subprocess.run(
        [sys.executable, "-c", FROZEN], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True True\n"


def test_other_c_libraries_keep_theirs(monkeypatch):
    """Musl has no such function; that is no fault."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr("plugin.memory.gc", Mock())  # this process has the objects of all tests
    give_back()


PLUGIN = """
import sys
import plugin.__main__
sys.argv[1:] = ["--version"]
try:
    plugin.__main__.main()
except SystemExit:
    pass
import kube.client
import plugin.command_line as program
program.json_logger("info").info("here")
unused = ("httpx", "networkx", "oauthlib", "requests", "urllib3")
print([name for name in unused if name in sys.modules])
"""


def test_the_plugin_does_without_what_it_never_uses():
    """Its memory is counted: it runs on every node."""
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.endswith("\n[]\n")
    assert '"event": "here"' in done.stderr


def test_a_client_that_is_imported_already_is_left():
    """Its half is loaded then."""
    skip_synchronous_client()
    assert sys.modules["kubernetes"] is kubernetes


def test_a_client_that_is_missing_is_named():
    """As every other dependency that is not installed."""
    program = (
        "import sys; sys.modules['kubernetes'] = None\nfrom plugin.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: coterie-plugin needs its dependencies (kubernetes")
