"""A reading of the machine, for programs and for people.

What it answers: the JSON and the text of `discover`. It must never read a machine, nor leave out
what could not be told: null in JSON, a question mark in the text.

The JSON is one object; fields are only ever added within a `schema_version`:

    schema_version    1
    driver_version    NVIDIA's driver, as 580.65.06, or null
    gpus              one object each, in the order of the topology:
      index           NVML's index
      uuid            GPU-...
      pci_bus_id      dddd:bb:dd.f in lower case, or null
      model           product name, or null
      memory_mib      or null
      numa_node       NUMA node of its CPUs, or null
      minor           number of /dev/nvidia<minor>, or null
      n_c2c_links     links to a Grace CPU on the board, or null
      is_mig_enabled  true or false
      instances       MIG devices: uuid, profile (1g.10gb), index, gpu_instance, compute_instance,
                      memory_mib or null
      fault           why it cannot be used now, or null
    numa_distances    {"0": [10, 21], ...}: the kernel's, by NUMA node; {} where unknown
    topology          what `python -m topology show --json` prints (docs/schemas/show.json)
    notes             sentences for people: what could not be read, and why
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from topology.printable import printable
from topology.report.compute import report_show
from topology.report.listing import Grid, NoteLine, list_show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.machine import GpuReading, MachineReading
    from topology.report.listing import Block

__all__ = ["SCHEMA_VERSION", "list_reading", "reading_json", "reading_text"]

SCHEMA_VERSION = 1
"""Version of the JSON; a field that is taken away or changes its meaning raises it."""


def reading_json(reading: MachineReading) -> str:
    """The reading as JSON, indented, without a newline at its end."""
    body = {
        "schema_version": SCHEMA_VERSION,
        "driver_version": reading.driver_version,
        "gpus": [asdict(gpu) for gpu in reading.gpus],
        "numa_distances": {str(node): row for node, row in reading.numa_distances},
        "topology": asdict(report_show(reading.topology)),
        "notes": reading.notes,
    }
    return json.dumps(body, indent=2)


def list_reading(reading: MachineReading) -> list[Block]:
    """The reading as tables: what the driver told of the GPUs, then the topology, then notes."""
    blocks: list[Block] = [
        NoteLine("Devices", is_heading=True),
        Grid(("", ""), (("driver", printable(reading.driver_version or "?")),)),
        _device_grid(reading.gpus),
        *list_show(report_show(reading.topology)),
    ]
    if reading.notes:
        blocks.append(NoteLine("Notes", is_heading=True))
        blocks.extend(NoteLine(printable(note)) for note in reading.notes)
    return blocks


def reading_text(reading: MachineReading) -> str:
    """The tables as plain text, columns two blanks apart, without a newline at its end."""
    lines: list[str] = []
    for block in list_reading(reading):
        if isinstance(block, NoteLine):
            lines += ["", block.text] if block.is_heading and lines else [block.text]
        else:
            lines += _aligned(block)
    return "\n".join(lines)


def _device_grid(gpus: Sequence[GpuReading]) -> Grid:
    rows: list[tuple[str, ...]] = []
    for gpu in gpus:
        minor = "?" if gpu.minor is None else str(gpu.minor)
        mig = "on" if gpu.is_mig_enabled else "off"
        rows.append((str(gpu.index), minor, mig, printable(gpu.uuid), printable(gpu.fault or "")))
        rows.extend(
            ("", "", instance.profile, printable(instance.uuid), "") for instance in gpu.instances
        )
    return Grid(("GPU", "minor", "MIG", "uuid", "fault"), tuple(rows), frozenset({0, 1}))


def _aligned(grid: Grid) -> list[str]:
    rows = [grid.columns, *grid.rows] if any(grid.columns) else list(grid.rows)
    widths = [max(len(row[k]) for row in rows) for k in range(len(grid.columns))]
    return [
        "  ".join(
            cell.rjust(width) if k in grid.right_aligned else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
