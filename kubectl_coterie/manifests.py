"""The pods of a file of manifests, which `-f` names.

A file has one document or several, YAML or JSON, lists of objects among them. Objects that create
no pods are left out where others do. It reads the file and nothing else.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kube.documents import as_json, read_yaml_documents
from kube.errors import DocumentError, Unreadable
from kube.objects import KINDS, devices_of, kind_of, one_by_one, pinned_reason, pods_of
from kubectl_coterie.errors import CliError
from topology.annotations.pod_keys import GROUP, GROUP_SIZE
from topology.errors import file_fault, quote
from topology.model import as_object, object_at, objects_at, text_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kube.objects import PodTemplate

__all__ = ["ManifestPod", "PodFile", "read_pods"]


@dataclass(frozen=True, slots=True)
class ManifestPod:
    """A pod that a manifest creates, as JSON; `owner` names the manifest, and its template.

    `n_pods` None: one on each node. `one_by_one` says what makes the controller create the members
    of a group with a size one after the other, for the first of them; empty where nothing does.
    `pinned` is why no scheduler places a pod with devices (`kube.objects.pinned_reason`).
    """

    owner: str
    pod: dict[str, Any]
    n_pods: int | None
    one_by_one: str = ""
    pinned: str = ""

    @property
    def devices(self) -> tuple[str, ...]:
        """The extended resources, as every GPU is, that containers name with any but 0, by name.

        Raises `CliError`.
        """
        try:
            return devices_of(self.pod)
        except Unreadable as error:
            msg = f"{self.owner}: {error}"
            raise CliError(msg) from error

    @property
    def group(self) -> str | None:
        """The annotation that names its group; None without."""
        return self._annotations.get(GROUP)

    @property
    def group_size(self) -> str | None:
        """The annotation that says how many pods with GPUs its group has; None without."""
        return self._annotations.get(GROUP_SIZE)

    @property
    def _annotations(self) -> Mapping[str, str]:
        return texts_at(object_at(self.pod, "metadata"), "annotations")

    @property
    def warning(self) -> str | None:
        """That a group with a size may never be complete, where pods wait for the one before."""
        if not self.one_by_one or self.group_size in {None, "1"}:
            return None
        return (
            f"annotation {GROUP_SIZE} is {quote(self.group_size)}, and {self.owner} creates its "
            f"pods one after the other ({self.one_by_one}): the group may never be complete"
        )


@dataclass(frozen=True, slots=True)
class PodFile:
    """The pods of a file, and what was left out, in sentences."""

    pods: Sequence[ManifestPod]
    left_out: Sequence[str]


def read_pods(file: str, namespace: str, *, is_given: bool) -> PodFile:
    """Read a file, `-` for standard input; pods without a namespace are in `namespace`.

    `is_given` says that `-n` named it, so that no pod may be of another. Raises `CliError`.
    """
    shown = "standard input" if file == "-" else f"file {file}"
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = read_yaml_documents(text)
        if not documents:
            msg = f"{shown} is empty, expected a manifest"
            raise CliError(msg)
        manifests = [_in_namespace(one, namespace, is_given=is_given) for one in _flat(documents)]
    except (OSError, ValueError, DocumentError, Unreadable) as error:
        msg = f"{shown} cannot be read: {file_fault(error)}"
        raise CliError(msg) from error
    pods: list[ManifestPod] = []
    left_out: list[str] = []
    faults: list[str] = []
    for manifest in manifests:
        try:
            pods += _pods(manifest)
        except Unreadable as error:
            msg = f"{shown}: {_name(manifest)}: {error}"
            if _is_known(manifest):
                raise CliError(msg) from error
            faults.append(msg)
            left_out.append(f"{_name(manifest)} is left out: no pods of its kind are known.")
    if not pods:
        raise CliError(faults[0] if faults else f"{shown} is an empty list, expected a manifest")
    placed = [one for one in pods if not one.pinned]
    if not placed:
        msg = f"{pods[0].owner}: {pods[0].pinned}"
        raise CliError(msg)
    left_out += [f"{one.owner} is left out: {one.pinned}." for one in pods if one.pinned]
    return PodFile(placed, left_out)


def _is_known(manifest: Mapping[str, object]) -> bool:
    """Whether the pods of its kind are known; not where kind or apiVersion is no text."""
    try:
        return kind_of(manifest) in KINDS
    except Unreadable:
        return False


def _flat(documents: Iterable[object]) -> Iterator[Mapping[str, object]]:
    """The documents, and of a List its items. Raises `Unreadable`."""
    for document in documents:
        content = as_object(document, "a document")
        if content.get("kind") == "List":
            yield from objects_at(content, "items")
        else:
            yield content


def _in_namespace(
    manifest: Mapping[str, object], namespace: str, *, is_given: bool
) -> Mapping[str, object]:
    """A manifest with a namespace. Raises `CliError` and `Unreadable`."""
    metadata = object_at(manifest, "metadata")
    own = text_at(metadata, "namespace")
    if own and is_given and own != namespace:
        msg = (
            f"{_name(manifest)} is of namespace {quote(own)}, and -n is {quote(namespace)}: give "
            f"-n {own}, or leave it out"
        )
        raise CliError(msg)
    return {**manifest, "metadata": {**metadata, "namespace": own or namespace}}


def _pods(manifest: Mapping[str, object]) -> list[ManifestPod]:
    pods = [_pod(manifest, one) for one in pods_of(manifest)]
    groups: dict[str | None, list[int]] = {}
    for i, one in enumerate(pods):
        if one.devices and one.group_size is not None:
            groups.setdefault(one.group, []).append(i)
    for places in groups.values():
        first = places[0]
        if len(places) > 1 or pods[first].n_pods != 1:
            why = one_by_one(manifest, n_templates=len(places))
            pods[first] = replace(pods[first], one_by_one=why)
    return pods


def _pod(manifest: Mapping[str, object], template: PodTemplate) -> ManifestPod:
    owner = f"{_name(manifest)} {template.role}".rstrip()
    try:
        # Through text, so that dates become text, as the API server has them.
        pod: dict[str, Any] = json.loads(as_json(template.pod))
    except DocumentError as error:
        raise Unreadable(str(error)) from error
    found = ManifestPod(owner, pod, template.n_pods)
    return replace(found, pinned=pinned_reason(pod)) if found.devices else found


def _name(manifest: Mapping[str, object]) -> str:
    metadata = object_at(manifest, "metadata")
    name = metadata.get("name") or metadata.get("generateName") or ""
    return f"{manifest.get('kind') or 'Pod'} {name}".rstrip()
