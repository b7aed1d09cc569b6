"""`kubectl coterie audit` over an API server's lists, with no extender anywhere."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from kubectl_coterie.command_line import main
from tests.integration.kube.forwarding_server import ForwardingServer
from topology.model import encode_topology, names
from topology.recordings import load_recording


def node(name):
    """A node of a V100 mesh with its topology."""
    topology = load_recording("dgx-1-v100")
    gpus = tuple(replace(gpu, uuid=f"GPU-{i}") for i, gpu in enumerate(topology.gpus))
    topology = replace(topology, gpus=gpus)
    counts = {"nvidia.com/gpu": "8"}
    return {
        "metadata": {"name": name, "annotations": {names.TOPOLOGY: encode_topology(topology)}},
        "status": {"allocatable": counts, "capacity": counts},
    }


@contextmanager
def lists(folder, *, nodes):
    """An API server that has these nodes and no pods; gives a kubeconfig of it."""
    server = ForwardingServer()

    def answer(items):
        return lambda _request, _body: web.json_response(
            {"metadata": {"resourceVersion": "1"}, "items": items}
        )

    server.answer("GET", "/api/v1/nodes", answer(nodes))
    server.answer("GET", "/api/v1/pods", answer([]))
    is_up, is_done = threading.Event(), threading.Event()

    async def serve():
        async with server.running():
            is_up.set()
            await asyncio.to_thread(is_done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert is_up.wait(10)
        yield server.kubeconfig(folder)
    finally:
        is_done.set()
        thread.join()


def run(*arguments):
    """Run the program; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


@pytest.mark.parametrize(("form", "begins"), [((), ""), (("-o", "json"), "{")])
def test_the_report_is_printed_in_each_form(tmp_path, capsys, form, begins):
    """A text for people, JSON for programs."""
    with lists(tmp_path, nodes=[node("gpu-0")]) as kubeconfig:
        assert run("audit", "--kubeconfig", str(kubeconfig), *form) == 0
    said = capsys.readouterr().out
    assert said.lower().startswith(begins)
    if form == ("-o", "json"):
        assert json.loads(said)["machines"][0]["n_nodes"] == 1
    else:
        assert "1 node" in said or "V100" in said


def test_lists_that_cannot_be_read_are_one_sentence(tmp_path, capsys):
    """With the object and the field, and no trace of Python."""
    bad = {"metadata": {"name": "gpu-0", "annotations": 3}}
    with lists(tmp_path, nodes=[bad]) as kubeconfig:
        assert run("audit", "--kubeconfig", str(kubeconfig)) == 1
    assert capsys.readouterr().err.startswith("error: nodes: ")
