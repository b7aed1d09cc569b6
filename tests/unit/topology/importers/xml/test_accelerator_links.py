"""Link matrix and fabrics from where each GPU's links end."""

from __future__ import annotations

from topology.importers.xml.accelerator_links import LinkEnds, build_links
from topology.model import NO_LINK, UNKNOWN_LINK, AcceleratorLink, LinkKind, SwitchFabric

NV = LinkKind.NVLINK


def test_silence_of_all_is_unknown():
    """A file without link elements says nothing about links."""
    links, fabrics = build_links([LinkEnds(), LinkEnds()])
    assert links == ((NO_LINK, UNKNOWN_LINK), (UNKNOWN_LINK, NO_LINK))
    assert fabrics == ()


def test_silence_of_one_is_no_link_once_another_speaks():
    """Whoever wrote two GPUs' links would have written the third's."""
    links, _ = build_links([LinkEnds(NV, {1: 2}), LinkEnds(NV, {0: 2}), LinkEnds()])
    assert links[0][1] == AcceleratorLink(NV, 2)
    assert links[0][2] == NO_LINK


def test_a_direct_link_is_up_as_far_as_both_ends_count_it():
    """One end alone moves no data."""
    links, _ = build_links([LinkEnds(NV, {1: 4, 2: 1}), LinkEnds(NV, {0: 3}), LinkEnds(NV)])
    assert links[0][1] == AcceleratorLink(NV, 3)
    assert links[0][2] == NO_LINK


def test_switch_ports_give_the_lesser_count_and_one_fabric():
    """Two GPUs on a switch reach each other at the lesser of their ports, never summed."""
    links, fabrics = build_links(
        [LinkEnds(NV, to_switch=12), LinkEnds(NV, to_switch=10), LinkEnds(NV, {0: 1})]
    )
    assert links[0][1] == AcceleratorLink(NV, 10)
    assert links[0][2] == NO_LINK
    assert fabrics == (SwitchFabric(ports=((0, 12), (1, 10))),)


def test_links_to_unknown_devices_leave_pairs_unknown():
    """Two such GPUs may be each other's far end; a GPU whose links are all placed is not."""
    links, _ = build_links([LinkEnds(NV, n_unplaced=12), LinkEnds(NV, n_unplaced=12), LinkEnds(NV)])
    assert links[0][1] == UNKNOWN_LINK
    assert links[0][2] == NO_LINK
