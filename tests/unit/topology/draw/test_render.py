"""The picture of a machine: what it shows, that nothing overlaps, that it is fit to embed."""

import importlib.util
import math
import re
import sys
import warnings
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.strategies import node_topologies
from topology.draw import render
from topology.draw.layout import NIC_LENGTH, Band, lay_out
from topology.draw.render import draw_topology, save_png
from topology.draw.scene import SET_COLOURS, compose_scene
from topology.draw.shapes import Box, Disc, Lines, Text, Wedge
from topology.errors import InvalidRequest, UnknownDevice
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    PcieLevel,
    SwitchFabric,
)

QUADS = [0, 0, 0, 0, 1, 1, 1, 1]


def machine(
    n,
    *,
    pairs=(),
    default=NO_LINK,
    ports=(),
    is_up=True,
    kind=LinkKind.NVLINK,
    level=lambda _i, _j: PcieLevel.UNKNOWN,
    numa=None,
    nics=(),
    model: str | None = "Test GPU",
    name=None,
):
    """Make a machine of `n` GPUs; `pairs` are (i, j, n_links), `ports` is the fabric's counts."""
    links = [[NO_LINK if i == j else default for j in range(n)] for i in range(n)]
    for i, j, count in pairs:
        links[i][j] = links[j][i] = AcceleratorLink(kind, count)
    for i in range(len(ports)):
        for j in range(n):
            lesser = min(ports[i], ports[j]) if is_up and i != j else 0
            links[i][j] = AcceleratorLink(kind, lesser) if lesser else NO_LINK
    return NodeTopology(
        gpus=tuple(Gpu(model=model, numa_node=numa[i] if numa else None) for i in range(n)),
        links=tuple(map(tuple, links)),
        pcie=tuple(
            tuple(PcieLevel.SELF if i == j else level(i, j) for j in range(n)) for i in range(n)
        ),
        nics=nics,
        fabrics=(SwitchFabric(tuple(enumerate(ports)), kind, is_up=is_up),) if ports else (),
        name=name,
    )


def two_sockets(i, j):
    """Two sockets of two PXB trees of two PIX switches of one GPU pair, as a DGX-2's half."""
    if i // 4 != j // 4:
        return PcieLevel.SYS
    return PcieLevel.PIX if i // 2 == j // 2 else PcieLevel.PHB


def nic(name, levels):
    """Make a NIC by its level to each GPU."""
    return Nic(name, tuple(levels))


def texts(scene):
    """Give all that is written in a picture."""
    return [shape.text for shape in scene.shapes if isinstance(shape, Text)]


def discs(scene):
    """Give the GPUs' discs (the legend's are smaller)."""
    return [s for s in scene.shapes if isinstance(s, Disc) and s.radius > 0.08]


# --- Layout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 16, 72, 200])
def test_discs_of_gpus_never_touch(n):
    """An overlap would make two GPUs look like one, at any size of machine."""
    layout = lay_out(machine(n))
    for i, a in enumerate(layout.gpus):
        for b in layout.gpus[:i]:
            assert math.hypot(a.x - b.x, a.y - b.y) > 2 * layout.gpu_radius


@given(numa=st.lists(st.integers(0, 3), min_size=2, max_size=16))
@settings(max_examples=up_to(40), deadline=None)
def test_any_numa_numbering_gives_contiguous_disjoint_sectors(numa):
    """A sector must hold its own GPUs and no others, also where the numbering interleaves."""
    layout = lay_out(machine(len(numa), numa=numa))
    assert len(layout.sectors) == len(set(numa))
    for sector in layout.sectors:
        inside = {
            gpu
            for gpu, place in enumerate(layout.gpus)
            if (math.degrees(place.angle) - sector.start_deg) % 360
            < sector.end_deg - sector.start_deg
        }
        assert inside == {g for g, node in enumerate(numa) if sector.label == f"NUMA {node}"}


@pytest.mark.parametrize(
    ("level", "numa", "expected"),
    [
        pytest.param(
            two_sockets, QUADS, {Band.HOST: 2, Band.PIX: 4}, id="NUMA outside, PIX inside"
        ),
        pytest.param(
            lambda i, j: PcieLevel.PIX if i // 2 == j // 2 else PcieLevel.PXB,
            None,
            {Band.PXB: 1, Band.PIX: 4},
            id="PXB holds all, and no NUMA node is named",
        ),
        pytest.param(
            lambda i, j: PcieLevel.NODE if i // 4 == j // 4 else PcieLevel.SYS,
            None,
            {Band.HOST: 2},
            id="sockets from NODE where no NUMA node is known",
        ),
        pytest.param(
            lambda _i, _j: PcieLevel.PIX,
            QUADS,
            {Band.HOST: 2, Band.PIX: 2},
            id="a PCIe group never crosses a NUMA node",
        ),
        pytest.param(lambda _i, _j: PcieLevel.SYS, None, {}, id="nothing in common, no sector"),
        pytest.param(lambda _i, _j: PcieLevel.UNKNOWN, None, {}, id="unknown is no group"),
    ],
)
def test_sectors_show_the_groups_that_are_known(level, numa, expected):
    """Groups are what the picture shows of PCIe."""
    found = [sector.band for sector in lay_out(machine(8, level=level, numa=numa)).sectors]
    assert {band: found.count(band) for band in set(found)} == expected


def test_partly_known_numa_is_not_used():
    """Half a partition would show GPUs of unknown place as if they had none."""
    topology = machine(2, level=lambda _i, _j: PcieLevel.NODE, numa=[0, None])
    assert [sector.label for sector in lay_out(topology).sectors] == [None]


@pytest.mark.parametrize(
    ("nics", "labels"),
    [
        pytest.param([nic("mlx5_0", [PcieLevel.PIX] * 2)], ["mlx5_0"], id="one NIC by name"),
        pytest.param([nic("rdmap16s27f0", [PcieLevel.SYS] * 2)], ["NIC"], id="long name cut"),
        pytest.param(
            [nic(f"mlx5_{k}", [PcieLevel.PXB, PcieLevel.NODE]) for k in range(4)],
            ["4 NICs"],
            id="NICs of one place share a box",
        ),
        pytest.param([nic("eth0", [PcieLevel.UNKNOWN] * 2)], ["eth0"], id="unknown stands outside"),
    ],
)
def test_nics_stand_beside_their_nearest_gpus(nics, labels):
    """Thirty-two NICs of a cloud machine must stay readable."""
    layout = lay_out(machine(2, numa=[0, 0], nics=tuple(nics)))
    assert [spot.label for spot in layout.nics] == labels


def test_nics_on_one_ring_never_overlap():
    """NICs whose GPUs have the same middle are pushed apart."""
    pix, pxb, node = PcieLevel.PIX, PcieLevel.PXB, PcieLevel.NODE
    nics = (
        nic("a", [pxb, pix, pxb, node]),
        nic("b", [pxb, pxb, pxb, node]),
        nic("c", [pix, node, pix, node]),
    )
    spots = sorted(lay_out(machine(4, nics=nics)).nics, key=lambda s: -s.place.angle)
    assert len(spots) == 3
    for a, b in pairwise(spots):
        assert math.hypot(a.place.x - b.place.x, a.place.y - b.place.y) > NIC_LENGTH


def test_hub_of_part_of_a_machine_stands_off_the_middle():
    """Two fabrics in one node must not share a hub."""
    link = AcceleratorLink(LinkKind.NVLINK, 4)
    links = [[link if i != j and i // 2 == j // 2 else NO_LINK for j in range(4)] for i in range(4)]
    base = machine(4)
    topology = NodeTopology(
        gpus=base.gpus,
        links=tuple(map(tuple, links)),
        pcie=base.pcie,
        fabrics=(SwitchFabric(((0, 4), (1, 4))), SwitchFabric(((2, 4), (3, 4)))),
    )
    first, second = lay_out(topology).hubs
    assert math.hypot(first.x - second.x, first.y - second.y) > 0.5


# --- Scene --------------------------------------------------------------------------------------


def test_links_are_as_wide_as_they_are_many():
    """The width is what distinguishes NV1 from NV2 in the picture."""
    topology = machine(6, pairs=[(0, 1, 1), (2, 3, 2), (4, 5, 12)])
    scene = compose_scene(topology)
    drawn = [s for s in scene.shapes if isinstance(s, Lines)][:3]
    assert sorted(line.width for line in drawn) == pytest.approx([1.0, 2.2, 4.6])
    assert {"NVLink, 1 link", "NVLink, 2 links", "NVLink, 12 links"} <= set(texts(scene))


def test_switched_machine_is_a_hub_not_a_mesh():
    """Sixteen GPUs on NVSwitch have 16 ports, not 120 wires."""
    scene = compose_scene(machine(16, ports=[6] * 16))
    lines = next(s for s in scene.shapes if isinstance(s, Lines))
    assert len(lines.segments) == 16
    assert {end for _, end in lines.segments} == {(0.0, 0.0)}
    assert "NVSwitch" in texts(scene)


def test_weak_port_is_labelled():
    """A GPU that lost a link looks like the others at 17 of 18 links unless a number says so."""
    scene = compose_scene(machine(4, ports=[18, 18, 17, 18]))
    assert texts(scene).count("17") == 1
    assert "18" not in texts(scene)


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        pytest.param(machine(2), "no direct\nGPU links", id="no links"),
        pytest.param(machine(2, default=UNKNOWN_LINK), "direct links\nunknown", id="unknown links"),
        pytest.param(machine(2, ports=[18, 18], is_up=False), "NVSwitch (down)", id="fabric down"),
        pytest.param(machine(2, ports=[18, 0]), "NVLink, down", id="one port down"),
        pytest.param(
            machine(2, ports=[7, 7], kind=LinkKind.METAXLINK), "MetaXLink switch", id="other switch"
        ),
        pytest.param(
            machine(2, pairs=[(0, 1, None)], kind=LinkKind.XGMI),
            "XGMI, links not counted",
            id="uncounted links",
        ),
        pytest.param(
            machine(2, default=UNKNOWN_LINK), "links unknown: all pairs", id="all unknown"
        ),
        pytest.param(
            machine(3, default=UNKNOWN_LINK, pairs=[(0, 1, 4)]),
            "links unknown: 2 of 3 pairs",
            id="some unknown",
        ),
        pytest.param(machine(2), "PCIe unknown: all pairs", id="PCIe unknown"),
        pytest.param(machine(2, model=None), "2 × GPU of unknown model", id="model unknown"),
        pytest.param(machine(2), "2 GPUs", id="a machine without a name"),
        pytest.param(machine(2, name="box\x1b[0m"), "box?[0m", id="control characters"),
        pytest.param(machine(2, numa=[0, 1]), "NUMA 1", id="NUMA node by number"),
    ],
)
def test_what_the_machine_is_stands_in_the_picture(topology, expected):
    """Unknown is not zero, in a picture as elsewhere."""
    assert expected in texts(compose_scene(topology))


def test_ports_of_a_down_fabric_are_one_entry_of_the_legend():
    """How many links a dead port has does not matter."""
    scene = compose_scene(machine(3, ports=[18, 17, 16], is_up=False))
    assert texts(scene).count("NVLink, down") == 1


def test_sets_colour_their_gpus_and_links():
    """The set is what the picture is for."""
    topology = machine(4, pairs=[(0, 1, 1), (1, 2, 1), (2, 3, 1)])
    scene = compose_scene(topology, sets=[("train", [0, 1]), ("infer", [3])])
    first, second = SET_COLOURS[:2]
    assert [disc.fill for disc in discs(scene)] == [first, first, "white", second]
    lines = {s.colour: len(s.segments) for s in scene.shapes[2:6] if isinstance(s, Lines)}
    assert lines[first] == 1
    assert {"train: GPU 0, 1", "infer: GPU 3"} <= set(texts(scene))


def test_gpu_in_two_sets_shows_both_colours():
    """Two candidate sets are compared in one picture."""
    scene = compose_scene(machine(3), sets=[("a", [0, 1]), ("b", [1, 2])])
    slices = [s for s in scene.shapes if isinstance(s, Wedge) and s.edge is None]
    assert [(s.fill, s.start_deg, s.end_deg) for s in slices] == [(SET_COLOURS[1], 270, 450)]


def test_port_of_a_down_fabric_is_in_no_set():
    """A set on a dead fabric has no NVLink to colour."""
    scene = compose_scene(machine(2, ports=[18, 18], is_up=False), sets=[("a", [0, 1])])
    assert not [s for s in scene.shapes if isinstance(s, Lines) and s.colour == SET_COLOURS[0]]


def test_colours_repeat_above_seven_sets():
    """More sets than colours is no error; the legend still distinguishes them."""
    scene = compose_scene(machine(8), sets=[(f"s{k}", [k]) for k in range(8)])
    fills = [disc.fill for disc in discs(scene)]
    assert len(set(fills)) == 7
    assert fills[7] == fills[0]


def test_long_names_are_cut_to_the_picture():
    """A pod's name may have 253 characters."""
    topology = machine(2, name="n" * 300, model="m" * 300)
    scene = compose_scene(topology, sets=[("p" * 300, [0])])
    longest = max((t for t in scene.shapes if isinstance(t, Text)), key=lambda t: len(t.text))
    assert longest.text.endswith("…")
    assert len(longest.text) * longest.size * 0.5 / 72 < scene.width


@pytest.mark.parametrize(
    ("gpus", "error", "message"),
    [
        pytest.param([], InvalidRequest, "set 'x' holds no GPU, expected at least one", id="empty"),
        pytest.param([0, 2], UnknownDevice, "set 'x': GPU 2 is not there, expected 0..1", id="big"),
        pytest.param(
            [-1], UnknownDevice, "set 'x': GPU -1 is not there, expected 0..1", id="below"
        ),
    ],
)
def test_sets_that_the_machine_does_not_have_are_refused(gpus, error, message):
    """A picture of a set that is not there would lie."""
    with pytest.raises(error) as caught:
        compose_scene(machine(2), sets=[("x", gpus)])
    assert str(caught.value) == message


def test_text_along_the_circle_is_never_upside_down():
    """Labels are read without turning the head over."""
    scene = compose_scene(machine(16, numa=list(range(16))))
    turns = [t.turn_deg for t in scene.shapes if isinstance(t, Text)]
    assert all(-90 <= turn <= 90 + 1e-3 for turn in turns)


def test_everything_lies_inside_the_picture():
    """What sticks out of the canvas is cut off."""
    far = tuple(nic(f"n{k}", [PcieLevel.SYS] * 8) for k in range(2))
    near = tuple(nic(f"m{k}", [PcieLevel.NODE] * 8) for k in range(2))
    scene = compose_scene(
        machine(8, numa=QUADS, level=two_sockets, nics=far + near), sets=[("a", [0])]
    )
    for shape in scene.shapes:
        if isinstance(shape, (Box, Disc, Text)):
            x, y = shape.at
            assert abs(x) < scene.width / 2
            assert -scene.below < y < scene.above


# --- SVG and PNG --------------------------------------------------------------------------------


def full_machine():
    """Make a machine with all there is to draw, and a name that XML and TeX would read."""
    return machine(
        16,
        ports=[6] * 15 + [5],
        level=lambda i, j: two_sockets(i % 8, j % 8) if i // 8 == j // 8 else PcieLevel.SYS,
        numa=[0] * 8 + [1] * 8,
        nics=tuple(
            nic(f"mlx5_{k}", [PcieLevel.PIX if g == k else PcieLevel.NODE for g in range(16)])
            for k in range(16)
        ),
        name="full <machine> & $co$",
    )


def test_svg_is_well_formed_small_and_refers_to_nothing_outside():
    """Forty of them stand in one self-contained HTML page."""
    svg = draw_topology(full_machine(), sets=[("a", [0, 1]), ("b", range(4, 12))])
    root = ET.fromstring(svg)  # noqa: S314 - our own text
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root[0].text == "full <machine> & $co$"
    assert len(svg.encode()) < 60_000
    assert svg.startswith("<svg")
    assert set(re.findall(r'https?://[^" ]*', svg)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "<style" not in svg
    assert all(ref.startswith("#") for ref in re.findall(r'href="([^"]*)"', svg))
    for outline in re.findall(r'href="#([^"]*)"', svg):
        assert f'id="{outline}"' in svg


def test_svg_keeps_text_as_text():
    """Text can be searched, and needs no outlines of letters."""
    assert ">mlx5_3</text>" in draw_topology(full_machine())


def test_same_input_gives_the_same_bytes():
    """A picture that changes without reason shows in every diff."""
    first, second = (draw_topology(full_machine(), title="t") for _ in range(2))
    assert first == second
    assert "<title>t</title>" in first


def test_72_gpus_are_drawn(tmp_path):
    """An NVL72 domain is the largest machine of 2026; no picture may exceed the PNG's bound."""
    topology = machine(72, ports=[18] * 72, numa=[k // 2 for k in range(72)])
    assert len(draw_topology(topology).encode()) < 100_000
    save_png(topology, tmp_path / "a.png")
    header = (tmp_path / "a.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert max(int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) <= 12 * 160


def test_names_in_any_script_give_no_warning():
    """A glyph that one font lacks is no concern of the caller."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "訓練" in draw_topology(machine(2), sets=[("訓練", [0])])


def test_without_matplotlib_the_import_says_what_to_install(monkeypatch):
    """The extra is optional; its absence must explain itself."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    spec = importlib.util.spec_from_file_location("draw_without_matplotlib", render.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.raises(ImportError, match="install the extra `draw`"):
        spec.loader.exec_module(module)


@given(topology=node_topologies(max_gpus=6), title=st.none() | st.text())
@settings(max_examples=up_to(25))
def test_any_machine_gives_well_formed_svg(topology, title):
    """Names come from outside, and recorded machines only show the usual corners of the model."""
    svg = draw_topology(topology, sets=[(title or "", [0])], title=title)
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own text
