"""Measured bandwidths of this machine's pairs of GPUs, by a benchmark that its owner gives.

The benchmark runs once for each pair (or set), alone on the machine, and sees only these GPUs. The
node plugin publishes the file that the command line writes.

The benchmark's words may hold `{n}` (how many GPUs) and `{bytes}` (the message size). It has the
uuids of its GPUs in the vendor's variable, and NCCL_DEBUG=VERSION, so that NCCL prints its version.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from plugin.errors import MeasurementError, ProgramError
from plugin.measure.nccl_output import read_all_reduce
from plugin.programs import run_program
from topology.errors import quote
from topology.model.measurement import MeasuredPair, MeasuredSet, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from plugin.measure.nccl_output import BusBandwidth

__all__ = ["DEFAULT_COMMAND", "DEFAULT_MESSAGE_BYTES", "Benchmark", "all_pairs", "measure"]

DEFAULT_MESSAGE_BYTES = 1 << 30
"""1 GiB: the value of a set is claimed for messages of at least that size (docs/adr/0002)."""
DEFAULT_COMMAND = "all_reduce_perf -b {bytes} -e {bytes} -g {n}"
"""One process over all GPUs (nccl-tests, README: -b least and -e greatest bytes, -g GPUs)."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """How a run is made: words of the command, message size, and seconds that it may take."""

    command: str = DEFAULT_COMMAND
    message_bytes: int = DEFAULT_MESSAGE_BYTES
    timeout_s: float = 300.0

    def words(self, n_gpus: int) -> list[str]:
        """The command for so many GPUs. Raises `MeasurementError` for a text that is none."""
        try:
            filled = self.command.format(n=n_gpus, bytes=self.message_bytes)
            words = shlex.split(filled)
        except (ValueError, KeyError, IndexError) as error:
            msg = (
                f"benchmark command {quote(self.command)}: {error}, "
                "expected words in which only {n} and {bytes} are in braces"
            )
            raise MeasurementError(msg) from error
        if not words:
            msg = f"benchmark command {quote(self.command)} is empty, expected a program"
            raise MeasurementError(msg)
        return words


def all_pairs(n_gpus: int) -> tuple[tuple[int, ...], ...]:
    """Every pair of GPUs, ascending."""
    return tuple(combinations(range(n_gpus), 2))


def measure(  # noqa: PLR0913 - what is run, on what, and what becomes of it
    uuids: Sequence[str],
    sets: Iterable[tuple[int, ...]],
    *,
    benchmark: Benchmark,
    visible_devices: str,
    date: str,
    advance: Callable[[tuple[int, ...], float], None],
) -> Measurement:
    """Run the benchmark on each set, one after another; `advance` is called with each figure.

    `visible_devices` is the variable by which a program sees only some GPUs (`Vendor`).
    Raises `MeasurementError` where a run fails, takes too long or yields no figure: a partial
    measurement would rank what was measured against what was not.
    """
    pairs: list[MeasuredPair] = []
    larger: list[MeasuredSet] = []
    version: str | None = None
    size: int | None = None
    for gpus in sets:
        visible = {visible_devices: ",".join(uuids[gpu] for gpu in gpus)}
        figure = _run(benchmark, visible, gpus)
        version = version or figure.nccl_version
        if size not in {None, figure.message_bytes}:
            msg = (
                f"benchmark on GPUs {gpus}: {figure.message_bytes} bytes, expected {size} as before"
            )
            raise MeasurementError(msg)
        size = figure.message_bytes
        if len(gpus) == 2:  # noqa: PLR2004 - a pair
            pairs.append(MeasuredPair(*gpus, figure.gbytes_per_s))
        else:
            larger.append(MeasuredSet(gpus, figure.gbytes_per_s))
        advance(gpus, figure.gbytes_per_s)
    return Measurement(
        pairs=tuple(pairs),
        sets=tuple(larger),
        message_bytes=size,
        nccl_version=version,
        date=date,
        source=benchmark.command,
    )


def _run(benchmark: Benchmark, visible: dict[str, str], gpus: tuple[int, ...]) -> BusBandwidth:
    words = benchmark.words(len(gpus))
    variables = {**visible, "NCCL_DEBUG": "VERSION"}
    try:
        printed = run_program(words, timeout_s=benchmark.timeout_s, variables=variables)
        return read_all_reduce(printed)
    except (ProgramError, MeasurementError) as error:
        msg = f"benchmark on GPUs {gpus}: {error}"
        raise MeasurementError(msg) from error
