"""A reading of the machine, for programs and for people.

The JSON and the text of `discover`. Unknown facts are null in JSON, a question mark in the text.

The JSON is one object; fields are only ever added within a `schema_version`:

    schema_version    1
    driver_version    the driver's, as 580.65.06, or null
    gpus              one object each, in the order of the topology:
      index           the driver's index
      uuid            GPU-...
      pci_bus_id      dddd:bb:dd.f in lower case, or null
      model           product name, or null
      memory_mib      or null
      numa_node       NUMA node of its CPUs, or null
      ...             what the vendor adds (`Vendor.facts_of`; docs/plugin.md)
      fault           why it cannot be used now, or null
      n_c2c_links     links to a CPU on the same board, or null
    numa_distances    {"0": [10, 21], ...}: the kernel's, by NUMA node; {} where unknown
    topology          what `python -m topology show --json` prints (docs/schemas/show.json)
    notes             sentences for people: what could not be read, and why
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from topology.printable import printable
from topology.report.blocks import Grid, NoteLine, block_text
from topology.report.listing import list_show
from topology.report.machine import report_show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plugin.machine import GpuReading, MachineReading
    from topology.report.blocks import Block

__all__ = ["SCHEMA_VERSION", "reading_document", "reading_json", "reading_text"]

SCHEMA_VERSION = 1
"""Version of the JSON; a field that is taken away or changes its meaning raises it."""


def reading_json(
    reading: MachineReading, facts_of: Callable[[GpuReading], Mapping[str, object]]
) -> str:
    """The reading as JSON, indented, without a newline at its end; arguments as below."""
    return json.dumps(reading_document(reading, facts_of), indent=2)


def reading_document(
    reading: MachineReading, facts_of: Callable[[GpuReading], Mapping[str, object]]
) -> dict[str, object]:
    """The reading as a value for JSON.

    `facts_of` gives what the vendor adds of each GPU (`Vendor.facts_of`).
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "driver_version": reading.driver_version,
        "gpus": [_gpu_json(gpu, facts_of(gpu)) for gpu in reading.gpus],
        "numa_distances": {str(node): row for node, row in reading.numa_distances},
        "topology": asdict(report_show(reading.topology)),
        "notes": reading.notes,
    }


def _gpu_json(reading: GpuReading, facts: Mapping[str, object]) -> dict[str, object]:
    gpu = reading.gpu
    return {
        "index": reading.index,
        "uuid": gpu.uuid,
        "pci_bus_id": gpu.pci_bus_id,
        "model": gpu.model,
        "memory_mib": gpu.memory_mib,
        "numa_node": gpu.numa_node,
        **facts,
        "fault": reading.fault,
        "n_c2c_links": reading.n_c2c_links,
    }


def _list_reading(reading: MachineReading, partitions: str) -> list[Block]:
    """The reading as tables: the GPUs as the driver reports them, the topology, notes."""
    blocks: list[Block] = [
        NoteLine("Devices", is_heading=True),
        Grid(("", ""), (("driver", printable(reading.driver_version or "?")),)),
        _device_grid(reading.gpus, partitions),
        *list_show(report_show(reading.topology)),
    ]
    if reading.notes:
        blocks.append(NoteLine("Notes", is_heading=True))
        blocks.extend(NoteLine(printable(note)) for note in reading.notes)
    return blocks


def reading_text(reading: MachineReading, partitions: str) -> str:
    """The tables as plain text, columns two blanks apart, without a newline at its end.

    `partitions` heads their column (`Vendor.partitions`).
    """
    return block_text(_list_reading(reading, partitions)).rstrip("\n")


def _device_grid(gpus: Sequence[GpuReading], partitions: str) -> Grid:
    rows: list[tuple[str, ...]] = []
    for gpu in gpus:
        nodes = ", ".join(gpu.nodes) or "?"
        split = "on" if gpu.is_partitioned else "off"
        rows.append((str(gpu.index), nodes, split, printable(gpu.uuid), printable(gpu.fault or "")))
        rows.extend(("", "", one.kind, printable(one.id), "") for one in gpu.partitions)
    columns = ("GPU", "device nodes", partitions, "uuid", "fault")
    return Grid(columns, tuple(rows), frozenset({0}))
