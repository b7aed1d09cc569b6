"""The matrix in colour, with its legend."""

from __future__ import annotations

import re

from kubectl_coterie.machine import matrix_lines
from kubectl_coterie.terminal import Style
from topology.model import NO_LINK, Gpu, NodeTopology, PcieLevel
from topology.recordings import load_recording
from topology.report.blocks import block_text
from topology.report.listing import list_show
from topology.report.machine import report_show

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
REPORT = report_show(load_recording("dgx-1-v100"))
COLOURED = matrix_lines(REPORT, Style(is_on=True))


def test_it_is_what_coterie_topology_shows():
    """Colours aside, line by line."""
    shown = block_text(list_show(REPORT)).splitlines()
    plain = matrix_lines(REPORT, Style(is_on=False))
    assert [ESCAPES.sub("", line) for line in COLOURED] == plain
    assert set(plain) <= set(shown)
    assert plain[0] == "Accelerator links"
    assert plain[-1].startswith("?")


def test_labels_have_colours():
    """A legend's explanation has none, whatever words it uses."""
    text = "\n".join(COLOURED)
    assert "\x1b[32mNV2\x1b[0m" in text
    assert "\x1b[31mSYS\x1b[0m  the link between CPU sockets (NUMA nodes)" in text
    assert "\x1b[2m?\x1b[0m    unknown" in text
    assert "GPU0  X     \x1b[32mNV1" in text


def test_one_gpu_has_no_matrix():
    """It says so."""
    one = NodeTopology(gpus=(Gpu(),), links=((NO_LINK,),), pcie=((PcieLevel.SELF,),))
    assert matrix_lines(report_show(one), Style(is_on=False)) == [
        "One GPU: it has no links to others."
    ]
