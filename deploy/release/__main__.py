"""`python -m deploy.release`: images, or a release.

Prints a line for each step with the seconds since the start. Exit codes: 0 done, 1 a step failed or
the checkout is no release (the message says why), 2 usage.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.manifests import HelmMissing
from deploy.release.checkout import identify
from deploy.release.commands import ReleaseError
from deploy.release.images import ARCHITECTURES, PROGRAMS, ImageOrder, build_images
from deploy.release.release import make_release

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parents[2]
_MIB = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--architectures", nargs="*", choices=ARCHITECTURES, default=ARCHITECTURES)
    shared.add_argument("--registry", default="", help="Put before each image's name.")
    shared.add_argument("--base", default="", help="The image under both, or `debian`.")
    commands = parser.add_subparsers(dest="command", required=True)
    images = commands.add_parser("images", parents=[shared], help="Build the images.")
    images.add_argument("--only", nargs="*", choices=PROGRAMS, default=PROGRAMS)
    images.add_argument("--tag", default="", help="By default the checkout's version.")
    images.add_argument("--push", action="store_true", help="Push, and write no archives.")
    release = commands.add_parser("release", parents=[shared], help="Make all files of a release.")
    release.add_argument("--untagged", action="store_true", help="Of a development version.")
    given = parser.parse_args(arguments)
    is_release = given.command == "release"
    order = ImageOrder(
        names=PROGRAMS if is_release else tuple(given.only),
        architectures=tuple(given.architectures),
        registry=given.registry,
        base=given.base,
        tag="" if is_release else given.tag,
        pushes=not is_release and given.push,
    )
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", file=sys.stderr, flush=True)

    try:
        identity = identify(_ROOT)
        if is_release:
            folder = _ROOT / "dist" / "release"
            made = make_release(identity, order, folder, say, is_untagged=given.untagged)
        else:
            built = build_images(order, identity, _ROOT / "dist" / "images", say)
            made = [one.archive for one in built if not order.pushes]
            print(*(f"{one.name}@{one.digest}" for one in built), sep="\n")
    except (ReleaseError, HelmMissing) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(f"{path.stat().st_size / _MIB:8.1f} MiB  {path.relative_to(_ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
