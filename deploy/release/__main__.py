"""`python -m deploy.release`: images, a release, the lock of the images' base.

Prints a line for each step with the seconds since the start. Exit codes: 0 done, 1 a step failed or
the checkout is no release (the message says why), 2 usage.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from deploy.release.checkout import identify
from deploy.release.content import renew_lock, write_lock
from deploy.release.errors import ReleaseError
from deploy.release.images import IMAGES, ImageOrder, build_images
from deploy.release.oci import ARCHITECTURES, architecture
from deploy.release.release import SIGNING, make_release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.release.images import BuiltImage

__all__ = ["app", "main"]

_ROOT = Path(__file__).resolve().parents[2]
_MIB = 1 << 20

app = typer.Typer(
    name="python -m deploy.release",
    help="Make images and releases: the same commit makes the same bytes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Architectures = Annotated[
    list[str],
    typer.Option("--architecture", help="Build for this one; repeat for more. [amd64, arm64]"),
]
Registry = Annotated[str, typer.Option(help="Put before each image's name, with a slash.")]
Kubernetes = Annotated[str, typer.Option(help="Minor version of kube-scheduler.")]


@app.command()
def images(
    only: Annotated[
        list[str], typer.Option(help=f"Build this one; repeat for more. [{', '.join(IMAGES)}]")
    ] = [],  # noqa: B006 - typer copies it
    architectures: Architectures = [],  # noqa: B006 - as above
    out: Annotated[Path, typer.Option(help="Folder for the archives.")] = Path("dist/images"),
    registry: Registry = "",
    kubernetes: Kubernetes = "1.36",
) -> None:
    """Build the images as OCI archives, without Docker."""
    say = _progress()
    order = _order(architectures, registry, kubernetes, tuple(only) or IMAGES)
    built = build_images(order, identify(_ROOT), out, say)
    say("done")
    _show(built)


@app.command()
def release(
    out: Annotated[Path, typer.Option(help="Folder for the files; it is replaced.")] = Path(
        "dist/release"
    ),
    architectures: Architectures = [],  # noqa: B006 - as above
    registry: Registry = "",
    kubernetes: Kubernetes = "1.36",
    *,
    untagged: Annotated[
        bool, typer.Option("--untagged", help="Make the files of a development version.")
    ] = False,
) -> None:
    """Make all files of a release; the commit must be tagged, and nothing changed since."""
    say = _progress()
    order = _order(architectures, registry, kubernetes, IMAGES)
    made = make_release(identify(_ROOT), order, out, say, is_untagged=untagged)
    if not made.has_chart:
        say("no chart: deploy/chart/Chart.yaml is not there")
    say("done")
    for name in made.files:
        typer.echo(f"{(made.folder / name).stat().st_size / _MIB:9.2f} MiB  {made.folder / name}")
    typer.echo(SIGNING)


@app.command()
def lock() -> None:
    """Renew the lock of the Debian packages in the images' base."""
    write_lock(renew_lock(_progress()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    try:
        app(list(arguments) if arguments is not None else None)
    except ReleaseError as error:
        Console(stderr=True).print(
            f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)


def _order(
    architectures: list[str], registry: str, kubernetes: str, names: tuple[str, ...]
) -> ImageOrder:
    chosen = tuple(architecture(name) for name in architectures) or ARCHITECTURES
    return ImageOrder(names=names, architectures=chosen, registry=registry, kubernetes=kubernetes)


def _progress() -> Callable[[str], None]:
    """Print steps to standard error, each with the seconds since now."""
    begun = time.monotonic()
    console = Console(stderr=True, highlight=False)

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - begun:6.1f} s  {text}", markup=False, soft_wrap=True)

    return say


def _show(built: list[BuiltImage]) -> None:
    """Print name, digest and sizes of each image."""
    table = Table("image", "architecture", "MiB", "MiB unpacked", "file", box=None)
    for image in built:
        for one in image.platforms:
            table.add_row(
                image.file.name,
                one.architecture.name,
                f"{one.size / _MIB:.1f}",
                f"{one.unpacked / _MIB:.1f}",
                str(image.file.path),
            )
    # Where the output is no terminal, rich would cut names at 80 columns.
    width = shutil.get_terminal_size().columns if os.isatty(1) else 200
    Console(width=width, highlight=False).print(table)
    for image in built:
        typer.echo(f"{image.file.name}@{image.file.digest}")


if __name__ == "__main__":
    main()
