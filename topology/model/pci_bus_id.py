"""A PCI bus id as this project writes it.

What it answers: whether a text is `dddd:bb:dd.f` in lower case, and how the texts of NVML and of
the kernel are brought to that. It looks up no device.
"""

from __future__ import annotations

import re

from topology.errors import InvalidTopology, quote

__all__ = ["is_pci_bus_id", "normalise_pci_bus_id"]

_FULL = re.compile(r"^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])$")


def is_pci_bus_id(text: str) -> bool:
    """Whether it is a bus id in the project's own form; eight domain digits are one too."""
    return _FULL.match(text) is not None


def normalise_pci_bus_id(text: str) -> str:
    """Bring a PCI bus id to lower case `dddd:bb:dd.f` (or eight domain digits where they count).

    NVML prints eight domain digits and mixed case, sysfs four and lower case. Raises
    `InvalidTopology` for anything else.

    >>> normalise_pci_bus_id("00000000:3B:00.0")
    '0000:3b:00.0'
    """
    lowered = text.strip().lower()
    if re.match(r"^[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$", lowered):
        lowered = "0000:" + lowered
    match = _FULL.match(lowered)
    if match is None:
        msg = f"PCI bus id {quote(text)}: expected [domain:]bb:dd.f in hexadecimal"
        raise InvalidTopology(msg)
    domain, bus, device, function = match.groups()
    short = domain[-4:] if int(domain, 16) <= 0xFFFF else domain  # noqa: PLR2004 - four hex digits
    return f"{short}:{bus}:{device}.{function}"
