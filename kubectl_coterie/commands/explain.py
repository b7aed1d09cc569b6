"""`kubectl coterie explain`: why a pod waits, or why it has its GPUs; also of a manifest's."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as url_quote
from urllib.parse import unquote

from kubectl_coterie.commands.session_of import output_of, session_of
from kubectl_coterie.errors import CliError
from kubectl_coterie.manifests import read_pods
from kubectl_coterie.text import count, explanation_lines
from topology.errors import quote
from topology.model import object_at, objects_at, text_at
from topology.printable import printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from kubectl_coterie.cluster import ReadApiClient, Session
    from kubectl_coterie.cluster.read_api import Json
    from kubectl_coterie.manifests import ManifestPod
    from kubectl_coterie.terminal import Output

__all__ = ["run"]

_KINDS = ("pod/", "pods/", "po/")


def run(given: Namespace) -> int:
    """Explain it. Raises `CliError`."""
    if (given.pod is None) == (given.filename is None):
        msg = "explain needs either POD or -f FILE; `kubectl coterie pods` lists pods"
        raise CliError(msg)
    asyncio.run(_explain(given))
    return 0


async def _explain(given: Namespace) -> None:
    output = output_of(given)
    async with session_of(given) as session:
        if given.filename is None:
            await _pod(given, session, output)
        else:
            await _file(given, session, output)


async def _pod(given: Namespace, session: Session, output: Output) -> None:
    """A pod of the cluster."""
    namespace, name = session.namespace or "default", given.pod
    for prefix in _KINDS:
        name = name.removeprefix(prefix)
    api = await session.read_api()
    path = f"{url_quote(namespace, safe='')}/{url_quote(name, safe='')}"
    async with session.progress.step(f"explaining {name}"):
        answer = await api.find(f"explain/{path}")
        if answer is None:
            msg = (
                f"pod {quote(name)} is not in namespace {quote(namespace)}: `kubectl coterie pods "
                "-A` lists those that the extender knows, -n names another namespace"
            )
            raise CliError(msg)
        if output.is_data:
            output.data(answer)
            return
        known = await _known(answer, path, api, session)
    lines = explanation_lines(
        answer, output.style, now_s=time.time(), has_nodes=given.nodes, **known
    )
    output.print("\n".join(lines))


async def _known(answer: Json, path: str, api: ReadApiClient, session: Session) -> dict[str, Any]:
    """What else is known of a pod, as `explanation_lines` takes it."""
    bound = answer.get("bound")
    if bound is None:
        is_rejected = answer.get("unschedulable") is not None or answer["request"] is None
        return {} if is_rejected else {"scheduler": await _scheduler(path, session)}
    placed = await api.find(f"pods/{path}")
    node = None
    if placed is not None and placed["as_planned"] is False:
        node = await api.find(f"nodes/{url_quote(placed['node'], safe='')}")
    ids: Sequence[str] = () if node is None else [gpu["id"] for gpu in node["gpus"]]
    return {"placed": placed, "node_ids": ids}


async def _scheduler(path: str, session: Session) -> str:
    """What the API server says of a pod's scheduling; empty where it is not to be read."""
    if session.options.extender_url is not None:
        return ""  # the kubeconfig may be of another cluster
    namespace, _, name = path.partition("/")
    query = {"fieldSelector": f"metadata.name={unquote(name)}"}
    try:
        found = await session.list_objects(f"/api/v1/namespaces/{namespace}/pods", query)
    except CliError:
        return ""  # a user may lack the right, and is answered without
    if not found:
        return ""
    pod = found[0]
    scheduler = text_at(object_at(pod, "spec"), "schedulerName") or "default-scheduler"
    conditions = objects_at(object_at(pod, "status"), "conditions")
    said = next((text_at(one, "message") for one in conditions if _is_refusal(one)), "")
    what = f"which says: {said}" if said else "which has not tried it yet"
    return printable(f"its schedulerName is {scheduler}, {what}")


def _is_refusal(condition: Mapping[str, object]) -> bool:
    return condition.get("type") == "PodScheduled" and condition.get("status") == "False"


async def _file(given: Namespace, session: Session, output: Output) -> None:
    """The pods of a file, each by itself."""
    namespace = session.namespace or "default"
    read = partial(read_pods, given.filename, namespace, is_given=given.namespace is not None)
    found = await asyncio.to_thread(read)
    for sentence in found.left_out:
        sys.stderr.write(f"{printable(sentence)}\n")
    api = await session.read_api()
    answers: list[Json] = []
    for one in found.pods:
        async with session.progress.step(f"explaining {one.owner}"):
            answers.append(await _posted(one, api))
    warnings = _group_warnings(list(zip(found.pods, answers, strict=True)))
    for one, answer in zip(found.pods, answers, strict=True):
        if one.warning is not None:
            answer["warnings"].append(one.warning)
        if (warning := warnings.pop(_group(answer), None)) is not None:
            answer["warnings"].append(warning)
    if output.is_data:
        output.data(answers[0] if len(answers) == 1 else {"items": answers})
        return
    blocks: list[str] = []
    for one, answer in zip(found.pods, answers, strict=True):
        lines = explanation_lines(
            answer,
            output.style,
            now_s=time.time(),
            is_manifest=True,
            has_nodes=given.nodes,
            devices=one.devices,
        )
        if len(answers) > 1 or one.n_pods != 1:
            n_pods = "a pod on each node" if one.n_pods is None else count(one.n_pods, "pod")
            lines.insert(0, output.style.paint(f"{printable(one.owner)}, {n_pods}:", "dim"))
        blocks.append("\n".join(lines))
    output.print("\n\n".join(blocks))


def _group_warnings(pods: Sequence[tuple[ManifestPod, Json]]) -> dict[tuple[str, str], str]:
    """What keeps groups of a file from starting, by namespace and name.

    It makes too few members or too many, or these state different sizes.
    """
    made: dict[tuple[str, str], int] = {}
    wanted: dict[tuple[str, str], int] = {}
    stated: dict[tuple[str, str], set[str]] = {}
    sizes: dict[tuple[str, str], int] = {}
    owners: dict[tuple[str, str], set[str]] = {}
    for one, answer in pods:
        group = answer.get("group")
        if group is None or group["n_bound"] or one.n_pods is None:
            continue
        if one.group_size is None and group["size"] is not None:
            continue  # sizes of other projects count pods without GPUs too
        key, size = _group(answer), one.group_size
        owners.setdefault(key, set()).add(one.owner)
        stated.setdefault(key, set()).add("none" if size is None else str(int(size)))
        if size is None:
            continue
        made[key] = made.get(key, 0) + one.n_pods
        wanted[key] = max(wanted.get(key, 0), group["n_missing"])
        sizes[key] = max(sizes.get(key, 0), group["size"] or 0)
    differ = {
        key: f"pods of this file state different sizes of group {key[1]}, so that none starts: "
        + " and ".join(sorted(given))
        for key, given in stated.items()
        if len(given) > 1
    }
    several = {
        key: (
            f"this file makes {n_made} members of group {key[1]}, which starts with "
            f"{sizes[key]:,}, whichever these are: name a group for each job, or state the "
            "size of all"
        )
        for key, n_made in made.items()
        if n_made > sizes[key] and _are_of_several_jobs(owners[key])
    }
    few = {
        key: (
            f"this file makes {n_made} of the {wanted[key]:,} members that group {key[1]} lacks: "
            "none starts before others bring the rest"
        )
        for key, n_made in made.items()
        if n_made < wanted[key]
    }
    return several | few | differ


def _are_of_several_jobs(owners: set[str]) -> bool:
    """Whether members may be of several jobs; each replica of a LeaderWorkerSet has a group."""
    kinds = {one.partition(" ")[0] for one in owners}
    names = {tuple(one.split(" ")[:2]) for one in owners}
    return "LeaderWorkerSet" not in kinds and (len(names) > 1 or "JobSet" in kinds)


def _group(answer: Json) -> tuple[str, str]:
    """Namespace and name of a pod's group; an empty name for none."""
    group = answer.get("group")
    return answer["pod"].partition("/")[0], "" if group is None else group["name"]


async def _posted(one: ManifestPod, api: ReadApiClient) -> Json:
    try:
        return await api.post("explain", one.pod)
    except CliError as error:
        msg = f"{one.owner}: {error}"
        raise CliError(msg) from error
