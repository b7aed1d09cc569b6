"""A machine drawn in characters: NUMA nodes, PCIe switches with GPUs and NICs, links, owners.

    NUMA 0
    ├─ PCIe switch   [GPU0 A] [GPU1 A]   mlx5_0
    └─ PCIe switch   [GPU2 ·] [GPU3 !]   mlx5_1

Each pod has a letter and a colour; `·` is free, `!` unhealthy, no mark unknown. What is not known
of the machine is not drawn as if it were: GPUs whose NUMA nodes are unknown stand together.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING

from kubectl_coterie.machine.link_lines import link_lines
from kubectl_coterie.machine.numbers import ranges
from kubectl_coterie.machine.places import Host, Switch, hosts_of
from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_coterie.machine.owners import GpuOwner
    from kubectl_coterie.terminal import Style
    from topology.model import NodeTopology

__all__ = ["draw_machine"]

MOST_IN_LINE = 8
_LETTERS = ascii_uppercase + ascii_lowercase
_POD_COLOURS = (
    ("blue",),
    ("yellow",),
    ("magenta",),
    ("cyan",),
    ("bold", "blue"),
    ("bold", "yellow"),
    ("bold", "magenta"),
    ("bold", "cyan"),
)


def draw_machine(topology: NodeTopology, owners: Sequence[GpuOwner], style: Style) -> list[str]:
    """The lines: machine, links, then who has what. `owners` are by GPU."""
    pods = list(dict.fromkeys(owner.pod for owner in owners if owner.pod is not None))
    drawing = _Drawing(owners, {pod: k for k, pod in enumerate(pods)}, style)
    lines: list[str] = []
    for host in hosts_of(topology):
        lines += drawing.host(host)
    links = link_lines(topology, style)
    return [*lines, *([""] if links else []), *links, "", *drawing.legend()]


class _Drawing:
    """What all parts need: owners, each pod's place in the legend, colours."""

    def __init__(self, owners: Sequence[GpuOwner], pods: dict[str, int], style: Style) -> None:
        self._owners = owners
        self._pods = pods
        self._style = style

    def host(self, host: Host) -> list[str]:
        lines = [self._style.paint(host.label, "bold")]
        rows = [row for switch in host.switches for row in self._switch(switch)]
        rows += [("NICs", "  ".join(map(printable, host.nics)))] if host.nics else []
        width = max((len(label) for label, _ in rows), default=0)
        for k, (label, text) in enumerate(rows):
            branch = "└─" if k == len(rows) - 1 else "├─"
            if not label:
                branch = "  " if k == len(rows) - 1 else "│ "
            lines.append(f"{branch} {label:<{width}}   {text}".rstrip())
        return lines

    def _switch(self, switch: Switch) -> list[tuple[str, str]]:
        """A label and what hangs there; more than `MOST_IN_LINE` GPUs take more lines."""
        rows: list[tuple[str, str]] = []
        for k in range(0, len(switch.gpus), MOST_IN_LINE):
            cells = " ".join(self._cell(gpu) for gpu in switch.gpus[k : k + MOST_IN_LINE])
            rows.append(("" if k else switch.label, cells))
        if switch.nics:
            label, cells = rows[-1]
            rows[-1] = (label, f"{cells}   {'  '.join(map(printable, switch.nics))}")
        return rows

    def _cell(self, gpu: int) -> str:
        owner = self._owners[gpu]
        mark = self._letter(owner.pod) + "!" * (owner.reason is not None)
        if owner.state == "unhealthy" and not mark:
            mark = "!"
        if not mark and owner.is_free:
            mark = "·"
        text = f"[GPU{gpu} {mark}]" if mark else f"[GPU{gpu}]"
        return self._style.paint(text, *self._colours(owner))

    def _letter(self, pod: str | None) -> str:
        if pod is None:
            return ""
        place = self._pods[pod]
        return _LETTERS[place] if place < len(_LETTERS) else str(place)

    def _colours(self, owner: GpuOwner) -> tuple[str, ...]:
        if owner.reason is not None or owner.state == "unhealthy":
            return ("red",)
        if owner.pod is not None:
            return _POD_COLOURS[self._pods[owner.pod] % len(_POD_COLOURS)]
        return ("green",) if owner.is_free else ("dim",)

    def legend(self) -> list[str]:
        lines: list[str] = []
        for pod in self._pods:
            gpus = [k for k, owner in enumerate(self._owners) if owner.pod == pod]
            first = self._owners[gpus[0]]
            text = f"{self._letter(pod)}  {printable(pod)}   GPUs {ranges(gpus)}"
            state = "" if first.state in {None, "held"} else f"   {first.state}"
            colours = _POD_COLOURS[self._pods[pod] % len(_POD_COLOURS)]
            lines.append(self._style.paint(text + state, *colours))
        free = [k for k, owner in enumerate(self._owners) if owner.is_free]
        if free:
            lines.append(self._style.paint(f"·  free   GPUs {ranges(free)}", "green"))
        for k, owner in enumerate(self._owners):
            if owner.reason is not None or owner.state == "unhealthy":
                why = printable(owner.reason or "no reason is known")
                lines.append(self._style.paint(f"!  unhealthy   GPU {k}: {why}", "red"))
        unknown = [k for k, owner in enumerate(self._owners) if owner == type(owner)()]
        if unknown:
            lines.append(self._style.paint(f"   unknown   GPUs {ranges(unknown)}", "dim"))
        return lines
