"""`kubectl coterie what-if`: where pods would go, after nodes were drained or added."""

from __future__ import annotations

import asyncio
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from kubectl_coterie.commands.session_of import output_of, session_of
from kubectl_coterie.errors import CliError
from kubectl_coterie.manifests import read_pods
from kubectl_coterie.text import what_if_lines
from topology.errors import quote
from topology.printable import printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence

    from kubectl_coterie.cluster import Session

__all__ = ["run"]


def run(given: Namespace) -> int:
    """Say it. Raises `CliError`."""
    if given.filename is None and not given.drain and not given.add:
        msg = "what-if needs at least one of -f FILE, --drain NODE and --add MACHINE"
        raise CliError(msg)
    if given.replicas is not None and given.filename is None:
        msg = "--replicas is how many pods of -f FILE there are, which is missing"
        raise CliError(msg)
    if given.replicas is not None and given.replicas < 1:
        msg = f"--replicas is {given.replicas}, expected at least 1"
        raise CliError(msg)
    asyncio.run(_what_if(given, list(map(_machine, given.add))))
    return 0


async def _what_if(given: Namespace, add: Iterable[dict[str, Any]]) -> None:
    output = output_of(given)
    async with session_of(given) as session:
        pods = [] if given.filename is None else await _pods(given, session)
        drain = [name.removeprefix("node/") for name in given.drain]
        api = await session.read_api()
        async with session.progress.step("placing pods"):
            body = {"pods": pods, "drain": drain, "add": list(add)}
            try:
                answer = await api.post("what-if", body)
            except CliError as error:
                raise CliError(_as_typed(str(error), pods)) from error
    if output.is_data:
        output.data(answer)
    else:
        output.print("\n".join(what_if_lines(answer, output.style)))


async def _pods(given: Namespace, session: Session) -> list[dict[str, Any]]:
    """The pods of a file, as the extender takes them; those without GPUs it refuses by name."""
    namespace = session.namespace or "default"
    read = partial(read_pods, given.filename, namespace, is_given=given.namespace is not None)
    found = await asyncio.to_thread(read)
    for sentence in found.left_out:
        sys.stderr.write(f"{printable(sentence)}\n")
    wanted = [one for one in found.pods if one.devices]
    if not wanted:
        msg = f"{found.pods[0].owner} requests no GPU: nothing would be placed"
        raise CliError(msg)
    for one in found.pods:
        if one not in wanted:
            sys.stderr.write(f"{printable(one.owner)} is left out: it requests no GPU.\n")
    if given.replicas is not None and len(wanted) > 1:
        msg = f"--replicas is for one pod, and {given.filename} has {len(wanted)}: leave it out"
        raise CliError(msg)
    pods: list[dict[str, Any]] = []
    for one in wanted:
        if one.warning is not None:
            sys.stderr.write(f"Warning: {printable(one.warning)}\n")
        n_pods = one.n_pods if given.replicas is None else given.replicas
        if n_pods is None:
            msg = f"{one.owner} has a pod on each node: say how many with --replicas"
            raise CliError(msg)
        if n_pods == 0:
            msg = f"{one.owner} has 0 pods now: say how many with --replicas"
            raise CliError(msg)
        pods.append({"manifest": {**one.pod, "kind": "Pod"}, "count": n_pods})
    return pods


def _as_typed(message: str, pods: Sequence[Mapping[str, Any]]) -> str:
    """The message with what was typed in the place of the body's fields."""

    def owner(found: re.Match[str]) -> str:
        metadata = pods[int(found[1])]["manifest"].get("metadata", {})
        return f"-f, pod {printable(str(metadata.get('name', 'without a name')))}"

    message = re.sub(r"^pods\.(\d+)\.manifest", owner, message)
    message = re.sub(r"^(drain|add)\.\d+(\.machine)?", r"--\1", message)
    return message.replace("/api/v1/nodes lists", "`kubectl coterie nodes` lists")


def _machine(text: str) -> dict[str, Any]:
    """`MACHINE` or `MACHINE=N`."""
    machine, equals, number = text.rpartition("=")
    if not equals:
        return {"machine": text, "count": 1}
    if not machine or not number.isdecimal() or int(number) < 1:
        msg = f"--add is {quote(text)}, expected MACHINE or MACHINE=N with N of at least 1"
        raise CliError(msg)
    return {"machine": machine, "count": int(number)}
