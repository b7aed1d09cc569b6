"""All files of a release in one folder, with their checksums.

What other tools make is theirs: hatchling's wheel, Helm's chart and manifests, CycloneDX's bills of
materials. Signing is not done here, since it needs an identity: docs/releasing.md says how.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.manifests import find_helm
from deploy.release.checkout import changelog_entry
from deploy.release.commands import ReleaseError, run
from deploy.release.images import DEBIAN, build_images

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.release.checkout import Identity
    from deploy.release.images import ImageOrder

__all__ = ["make_release"]


def make_release(
    identity: Identity,
    order: ImageOrder,
    folder: Path,
    say: Callable[[str], None],
    *,
    is_untagged: bool = False,
) -> list[Path]:
    """Make every file in `folder`, which is replaced once all are there; returns their paths.

    Raises `ReleaseError`.
    """
    entry = changelog_entry(identity, is_untagged=is_untagged)
    if order.base not in {"", DEBIAN} and "@sha256:" not in order.base:
        msg = (
            f"base {order.base!r}, expected an image with its digest (NAME@sha256:...) or {DEBIAN}"
        )
        raise ReleaseError(msg)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / "CHANGES.md").write_text(entry, encoding="utf-8")

    def make(*command: str | Path) -> None:
        run(command, identity.checkout, {"SOURCE_DATE_EPOCH": str(identity.epoch)})

    say("building wheel and sdist")
    make(sys.executable, "-m", "hatchling", "build", "--directory", partial)
    say("packing the chart and the manifests")
    versions = (f"--version={identity.chart_version}", f"--app-version={identity.image_tag}")
    make(find_helm(), "package", "deploy/chart", f"--destination={partial}", *versions)
    with tempfile.TemporaryDirectory() as work:
        registry = ("--registry", order.registry) if order.registry else ()
        tag = ("--tag", identity.image_tag)
        make(sys.executable, "-m", "deploy.manifests", "--output", work, *tag, *registry)
        shutil.copytree(identity.checkout / "deploy" / "kubeadm", Path(work, "kubeadm"))
        archive = partial / f"coterie-manifests-{identity.image_tag}.tgz"
        make(
            *("tar", "--create", "--gzip", "--sort=name", f"--mtime=@{identity.epoch}"),
            *("--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"),
            *(f"--file={archive}", f"--directory={work}", "."),
        )
    images = build_images(order, identity, partial, say)
    names = "".join(f"{one.name}@{one.digest}\n" for one in images)
    (partial / "images.txt").write_text(names, encoding="utf-8")
    for program in order.names:
        bill = partial / f"sbom-{program}.cdx.json"
        say(f"writing {bill.name}")
        make(
            *(sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible"),
            *("--spec-version=1.6", f"--output-file={bill}", f"requirements/{program}.txt"),
        )
    sums = "".join(f"{_digest(path)}  {path.name}\n" for path in sorted(partial.iterdir()))
    (partial / "SHA256SUMS").write_text(sums, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return sorted(folder.iterdir())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
