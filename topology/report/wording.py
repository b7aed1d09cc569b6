"""Words that several reports share: what limits a set, a machine's name, why a figure is not known.

It computes nothing and lays nothing out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.printable import printable

if TYPE_CHECKING:
    from topology.report.values import MachineReport

__all__ = ["LIMITS", "gibibytes", "machine_name", "unknowns", "with_all_links"]

LIMITS = {
    "nothing": "nothing to reduce",
    "switch": "switch ports",
    "ring": "closed rings of direct links",
    "relay": "direct links, some relayed by members",
    "port": "a GPU's PCIe port",
    "uplink": "a PCIe switch's uplink",
    "socket": "the link between CPU sockets",
}


def machine_name(machine: MachineReport) -> str:
    """What a report calls its machine."""
    return printable(machine.name) if machine.name else f"{machine.n_gpus} GPUs"


def unknowns(machine: MachineReport) -> str:
    """Why figures of a machine rest on unknowns, and what gives the facts."""
    if machine.n_models_unknown:
        return "GPU model unknown: --gpu-model MODEL"
    return "`show` lists what is unknown"


def with_all_links(machine: MachineReport) -> str:
    """What a loss is against, where links of the machine are down."""
    return " with all links up" if machine.has_links_down else ""


def gibibytes(count: int) -> str:
    """Write a message's size in GiB."""
    return f"{count / 2**30:g} GiB"
