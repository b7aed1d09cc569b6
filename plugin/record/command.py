"""What `coterie-plugin record` does: the machine of the settings into a file that did not exist."""

from __future__ import annotations

import platform
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from plugin.machine import serve_machine
from plugin.record.recorder import Sources, record
from plugin.record.redaction import Redaction
from plugin.sysfs import Sysfs
from plugin.vendor import VENDOR
from plugin.wiring import open_reader, serving_rules
from topology.cli.program import version

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import IO

    from plugin.config import LoadedSettings

__all__ = ["record_to"]

STDOUT = "-"


def record_to(
    out: str, loaded: LoadedSettings, *, keeps_ids: bool, say: Callable[[str], None]
) -> None:
    """Record into the new file `out`, or to standard output for `-`.

    `say` gets a sentence for each step and for whatever is missing in the end.
    Raises `SettingsError` for a simulated machine, and for a file that exists or cannot be written.
    """
    if loaded.settings.simulate is not None:
        msg = "setting simulate: record describes this machine, expected no simulated one"
        raise SettingsError(msg)
    redaction = Redaction(
        keeps=keeps_ids,
        host_names=(loaded.settings.node, platform.node()),
        identifying_keys=VENDOR.evidence.identifying_keys,
    )
    with _new_file(out) as file:
        bundle = record(_sources(loaded), redaction, say)
        bundle.write(file)
    for note in bundle.notes:
        say(f"missing: {note}")
    say(f"written to {'standard output' if out == STDOUT else out}")


def _sources(loaded: LoadedSettings) -> Sources:
    settings, evidence = loaded.settings, VENDOR.evidence
    return Sources(
        open_reader=partial(open_reader, settings),
        record_calls=evidence.record_calls,
        facts_of=VENDOR.facts_of,
        publish=lambda reading: serve_machine(reading, serving_rules(loaded)).topology_text,
        programs=evidence.programs(settings),
        kernel=Sysfs(settings.sysfs_root, settings.proc_root),
        proc_patterns=evidence.proc_files,
        dev_root=evidence.dev_root(settings),
        dev_patterns=evidence.dev_nodes,
        about={
            "version": version(),
            "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": settings.model_dump(mode="json"),
        },
    )


@contextmanager
def _new_file(name: str) -> Generator[IO[bytes]]:
    """A file that was not there before, removed again where nothing could be written."""
    if name == STDOUT:
        yield sys.stdout.buffer
        return
    path = Path(name)
    try:
        file = path.open("xb")
    except FileExistsError as error:
        msg = f"file {path} exists, expected the name of a new file"
        raise SettingsError(msg) from error
    except OSError as error:
        msg = f"file {path} cannot be written: {error.strerror}"
        raise SettingsError(msg) from error
    with file:
        try:
            yield file
        except BaseException:
            path.unlink(missing_ok=True)
            raise
