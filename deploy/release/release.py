"""All files of a release in one folder, with their checksums.

From the same commit and the same locks the files are the same, byte for byte. Signing is not done
here: it needs an identity; `SIGNING` says how, as the last step.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release.checkout import changelog_entry, refuse_changes, refuse_untagged
from deploy.release.commands import run
from deploy.release.content import kubectl_tree
from deploy.release.images import SCHEDULER, build_images
from deploy.release.manifests import krew_manifest, pack_chart, pack_manifests
from deploy.release.oci import file_digest, pack
from deploy.release.sbom import bill_of_materials

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.release.checkout import Identity
    from deploy.release.images import BuiltImage, ImageOrder

__all__ = ["SIGNING", "SUMS", "Release", "check_release", "make_release"]

SUMS = "SHA256SUMS"
SIGNING = """\
Not done here: push, and sign by the digests of images.txt (cosign 3):
  skopeo copy --all oci-archive:IMAGE.oci.tar docker://REGISTRY/NAME:TAG
  cosign sign --yes REGISTRY/NAME@DIGEST
  cosign attest --yes --type cyclonedx --predicate sbom-PROGRAM.cdx.json REGISTRY/NAME@DIGEST
  cosign sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS\
"""


@dataclass(frozen=True, slots=True)
class Release:
    """What a release has."""

    folder: Path
    files: tuple[str, ...]
    has_chart: bool


def check_release(identity: Identity, *, is_untagged: bool) -> str:
    """The entry of the changelog; raises `NotReleasable` where the checkout is no release.

    `is_untagged` takes a commit without a tag, with what the changelog has as unreleased.
    """
    refuse_changes(identity)
    if not is_untagged:
        refuse_untagged(identity)
    text = (identity.checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    return changelog_entry(text, None if is_untagged else identity.version)


def make_release(
    identity: Identity,
    order: ImageOrder,
    folder: Path,
    say: Callable[[str], None],
    *,
    is_untagged: bool = False,
) -> Release:
    """Make every file in `folder`, which is replaced once all are there.

    Raises `ReleaseError`.
    """
    entry = check_release(identity, is_untagged=is_untagged)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / "CHANGES.md").write_text(entry, encoding="utf-8")
    say("building wheel and sdist")
    run(
        [sys.executable, "-m", "hatchling", "build", "--directory", partial],
        folder=identity.checkout,
        environment=dict(os.environ) | {"SOURCE_DATE_EPOCH": str(identity.epoch)},
    )
    images = build_images(order, identity, partial, say)
    say("writing bills of materials and the list of images")
    for image in images:
        if image.name != SCHEDULER:
            bill = bill_of_materials(image, identity)
            (partial / f"sbom-{image.name}.cdx.json").write_text(bill, encoding="utf-8")
    (partial / "images.txt").write_text(_list(images), encoding="utf-8")
    say("packing manifests and chart")
    deploy = identity.checkout / "deploy"
    pack_manifests(deploy, identity, partial / f"coterie-manifests-{identity.image_tag}.tgz")
    has_chart = (deploy / "chart" / "Chart.yaml").is_file()
    if has_chart:
        target = partial / f"coterie-{identity.chart_version}.tgz"
        pack_chart(deploy / "chart", identity, target)
    say("packing kubectl-coterie")
    _pack_kubectl(order, identity, partial, say)
    files = sorted(path.name for path in partial.iterdir())
    sums = (f"{file_digest(partial / name)}  {name}\n" for name in files)
    (partial / SUMS).write_text("".join(sums), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return Release(folder, (*files, SUMS), has_chart)


def _pack_kubectl(
    order: ImageOrder, identity: Identity, target: Path, say: Callable[[str], None]
) -> None:
    """`kubectl coterie` for each architecture, and the manifest by which krew installs it."""
    digests: dict[str, str] = {}
    for architecture in order.architectures:
        name = f"kubectl-coterie_v{identity.chart_version}_linux_{architecture.name}.tar.gz"
        with tempfile.TemporaryDirectory() as work:
            tree = kubectl_tree(architecture, identity.version, identity.checkout, Path(work), say)
            packed = pack(tree, target / name, epoch=identity.epoch)
        digests[architecture.name] = packed.digest.removeprefix("sha256:")
    template = identity.checkout / "deploy" / "krew" / "coterie.yaml"
    manifest = krew_manifest(template, identity, digests)
    (target / template.name).write_text(manifest, encoding="utf-8")


def _list(images: list[BuiltImage]) -> str:
    """One line for each image: name, tag and digest, as a pod may name it."""
    return "".join(f"{one.file.name}@{one.file.digest}\n" for one in images)
