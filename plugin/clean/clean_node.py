"""What `coterie-plugin clean` does: sockets, CDI specifications and annotations of this node.

Removed is only what this plugin made: sockets by their names, specifications by their record, two
annotations by their keys. A plugin that still serves needs all of it, and a container that the
kubelet starts again needs the specifications, so either stops the removal.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kube.client import ApiServer
from kube.errors import KubeError, NotFound
from plugin.deviceplugin import SOCKET_NAMES, is_served
from plugin.errors import CdiError, KubeletError
from plugin.kubelet import PodResources
from plugin.vendor import VENDOR
from plugin.wiring import open_transport
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from plugin.config import LoadedSettings, PluginSettings

__all__ = ["CleanOptions", "clean_node"]

MAX_NAMED = 5
"""Pods that a line names; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """What to remove; with `is_dry_run` nothing is removed, and the output says what would be.

    `with_annotations`: those of the Node too. `is_forced`: specifications also where containers
    have devices, or where that is unknown.
    """

    with_annotations: bool = False
    is_forced: bool = False
    is_dry_run: bool = False


def clean_node(loaded: LoadedSettings, options: CleanOptions, say: Callable[[str], None]) -> bool:
    """Remove what the plugin left on this node; whether nothing is left that should go.

    `say` gets one line for each thing that was removed, or is left, and why. Nothing is removed
    while a plugin serves here. Raises `SettingsError` where the settings name no Node or lead to no
    API server, with annotations.
    """
    settings = loaded.settings
    cleaning = _Cleaning(options, say)
    asyncio.run(_clean(settings, settings.node if options.with_annotations else "", cleaning))
    if not cleaning.has_found:
        say("nothing to remove")
    return not cleaning.has_failed


async def _clean(settings: PluginSettings, node: str, cleaning: _Cleaning) -> None:
    async with contextlib.AsyncExitStack() as stack:
        transport = await stack.enter_async_context(open_transport(settings)) if node else None
        sockets = _own_sockets(settings.device_plugin_folder)
        serving = [path for path in sockets if is_served(path)]
        for path in serving:
            cleaning.keep(f"{path}: a node plugin serves there; end it first, nothing was removed")
        if serving:
            return
        cleaning.remove_files(sockets)
        await _clean_files(settings, cleaning)
        if transport is not None:
            await _clean_annotations(ApiServer(transport), node, cleaning)


class _Cleaning:
    """One run: what it may do, and what came of it."""

    def __init__(self, options: CleanOptions, say: Callable[[str], None]) -> None:
        self.options = options
        self.say = say
        self.has_found = False
        self.has_failed = False

    def remove_files(self, paths: Iterable[Path]) -> None:
        """Remove files and empty folders, in this order."""
        for path in paths:
            try:
                if not self.options.is_dry_run:
                    _remove(path)
            except OSError as error:
                self.keep(f"{path}: it cannot be removed: {error.strerror}")
            else:
                self.removed(str(path))

    def removed(self, what: str) -> None:
        """Report what is gone, or would be."""
        self.has_found = True
        self.say(f"{'would remove' if self.options.is_dry_run else 'removed'} {what}")

    def keep(self, why: str) -> None:
        """Report what should go and does not."""
        self.has_found = self.has_failed = True
        self.say(f"left {why}")


def _own_sockets(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(SOCKET_NAMES) if path.is_socket())


async def _clean_files(settings: PluginSettings, cleaning: _Cleaning) -> None:
    try:
        files = VENDOR.written_files(settings)
    except CdiError as error:
        cleaning.keep(f"what is there: {error}")
        return
    for path in files.changed:
        cleaning.say(f"left {path}: it is not as this plugin wrote it, so another program's")
    cleaning.has_found = cleaning.has_found or bool(files.changed)
    cleaning.remove_files(map(Path, files.unused))
    if not files.own:
        return
    needed_by = "" if cleaning.options.is_forced else await _needed_by(settings)
    if needed_by:
        cleaning.keep(f"{', '.join(files.own)}: {needed_by}; --force removes it all the same")
    else:
        cleaning.remove_files(map(Path, files.own))


async def _needed_by(settings: PluginSettings) -> str:
    """Why the specifications have to stay; empty: no container has devices of this vendor's.

    Listing makes the kubelet recount its devices, which must not happen while it allocates any
    (`plugin.kubelet.admission_gate`): it is done once, by hand, as every exporter does it.
    """
    try:
        found = await PodResources(settings.pod_resources_socket).read()
    except KubeletError as error:
        return f"whether containers that are started again need it is unknown ({error})"
    domain = settings.resource_name.partition("/")[0]
    pods = sorted(
        {
            f"{one.namespace}/{one.name}"
            for one in found.holdings
            if one.resource.partition("/")[0] == domain
        }
    )
    if not pods:
        return ""
    others = f" and {len(pods) - MAX_NAMED} more" if len(pods) > MAX_NAMED else ""
    return (
        f"containers of {', '.join(pods[:MAX_NAMED])}{others} have devices, "
        "and need it when they are started again"
    )


async def _clean_annotations(server: ApiServer, node: str, cleaning: _Cleaning) -> None:
    """Remove our annotations of the Node. That it carries none, or is gone, is no failure."""
    try:
        there = await server.annotate_node(node, {})
        due = [key for key in (names.TOPOLOGY, names.DEVICES) if key in there]
        if due and not cleaning.options.is_dry_run:
            await server.annotate_node(node, dict.fromkeys(due))
    except NotFound:
        return
    except KubeError as error:
        cleaning.keep(f"annotations of node {node}: they cannot be removed: {error}")
        return
    for key in due:
        cleaning.removed(f"annotation {key} of node {node}")


def _remove(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
