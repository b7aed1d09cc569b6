"""The embedded cluster's description and the nodes it makes."""

from __future__ import annotations

import pytest

from extender.embedded import ClusterSpec, lay_out, parse_cluster, read_cluster
from extender.errors import ClusterSpecError
from topology.model import DEFAULT_RESOURCE
from topology.recordings import load_recording

YAML = """
zones: [east, west]
groups:
  - {machine: dgx-1-v100, count: 2}
  - {machine: 8x-l4, count: 1, name: cheap, zone: north, unhealthy: [7], prefer_no_schedule: true}
  - {devices: 3, count: 1, resource: amd.com/gpu, labels: {example.com/rack: R2}}
"""
TOML = """
zones = ["east", "west"]
[[groups]]
machine = "dgx-1-v100"
count = 2
[[groups]]
machine = "8x-l4"
count = 1
name = "cheap"
zone = "north"
unhealthy = [7]
prefer_no_schedule = true
[[groups]]
devices = 3
count = 1
resource = "amd.com/gpu"
labels = {"example.com/rack" = "R2"}
"""


def test_a_line_names_machines_and_counts():
    """The short form, as a flag has it; blanks do not matter."""
    spec = parse_cluster("8x dgx-h100,4 x dgx-1-v100")
    assert [(g.count, g.machine) for g in spec.groups] == [(8, "dgx-h100"), (4, "dgx-1-v100")]
    assert spec.zones == ["zone-a", "zone-b", "zone-c"]


@pytest.mark.parametrize(("name", "text"), [("c.yaml", YAML), ("c.toml", TOML)])
def test_a_file_says_everything(tmp_path, name, text):
    """Both formats mean the same nodes."""
    path = tmp_path / name
    path.write_text(text)
    nodes = lay_out(read_cluster(path))
    assert [(n.name, n.zone, n.resource, len(n.ids)) for n in nodes] == [
        ("dgx-1-v100-0", "east", DEFAULT_RESOURCE, 8),
        ("dgx-1-v100-1", "west", DEFAULT_RESOURCE, 8),
        ("cheap-0", "north", DEFAULT_RESOURCE, 8),
        ("unknown-0", "west", "amd.com/gpu", 3),
    ]
    assert nodes[0].topology == load_recording("dgx-1-v100")
    assert nodes[2].unhealthy == (nodes[2].ids[7],)
    assert [n.prefer_no_schedule for n in nodes] == [False, False, True, False]
    assert nodes[3].topology is None
    assert [n.labels for n in nodes] == [{}, {}, {}, {"example.com/rack": "R2"}]


def test_device_ids_are_different_everywhere_and_always_the_same():
    """A replay must find the same ids, and no two nodes may share one."""
    nodes = lay_out(parse_cluster("3x dgx-1-v100, 2x 8x-l4"))
    ids = [device for node in nodes for device in node.ids]
    assert len(set(ids)) == len(ids) == 40
    assert nodes == lay_out(parse_cluster("3x dgx-1-v100, 2x 8x-l4"))
    assert ids[0] == "GPU-6c13923e-18ec-5662-92f5-009268466e35"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cluster part '': expected <count>x <machine>"),
        ("dgx-h100", "cluster part 'dgx-h100'"),
        ("-1x dgx-h100", "cluster part '-1x dgx-h100'"),
        ("0x dgx-h100", "cluster: groups.0.count is 0"),
        ("99999x dgx-h100", "cluster: groups.0.count is 99999"),
        ("2x pdp-11", "machine is 'pdp-11', expected one of: "),
        ("1x dgx-h100, 2x dgx-h100", "group 'dgx-h100' is given twice"),
        ("15000x dgx-h100, 15000x 8x-l4", "cluster has 30000 nodes, expected at most 20000"),
    ],
)
def test_a_line_that_means_no_cluster_is_refused(text, message):
    """By the part, its value and what was expected."""
    with pytest.raises(ClusterSpecError) as caught:
        parse_cluster(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("groups: [", "cannot be read"),
        ("[]", "content is []"),
        ("groups: []", "groups is empty, expected at least 1"),
        ("groups: [{machine: 8x-l4, count: 1, colour: red}]", "groups.0.colour is not a known key"),
        ("groups: [{machine: 8x-l4, count: '1'}]", "groups.0.count is '1'"),
        ("groups: [{machine: 8x-l4, count: 1, count: 2}]", "key 'count' is given twice"),
        ("[" * 600, "cannot be read: nested too deeply"),
        ("groups: &a [*a]", "groups.0 is [[...]], expected an object"),
        ("2026-13-45: x", "cannot be read: month must be in 1..12"),
        ("groups: [{machine: 8x-l4, count: 1, resource: a/}]", "groups.0.resource is 'a/'"),
        ("groups: [{count: 1}]", "expected one of them"),
        ("groups: [{machine: 8x-l4, devices: 8, count: 1}]", "expected one of them"),
        ("groups: [{machine: 8x-l4, count: 1}]\nzones: [A_B]", "zones.0 is 'A_B'"),
        ("groups: [{machine: 8x-l4, count: 1, labels: {a b: c}}]", "groups.0.labels.a b"),
        ("groups: [{machine: 8x-l4, count: 1, labels: {a: ''}}]", "groups.0.labels.a is ''"),
    ],
)
def test_a_file_that_means_no_cluster_is_refused(tmp_path, text, message):
    """By the field, its value and what was expected."""
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ClusterSpecError) as caught:
        read_cluster(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    """A missing file, no text, no TOML."""
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.toml").write_text("groups =")
    (tmp_path / "deep.toml").write_text("groups = " + "[" * 600)
    for name in ("missing.yaml", "nul\0.yaml", "b.yaml", "b.toml", "deep.toml"):
        with pytest.raises(ClusterSpecError, match="cannot be read"):
            read_cluster(tmp_path / name)
    with pytest.raises(ClusterSpecError, match=r"cannot be read: no such file or directory$"):
        read_cluster(tmp_path / "missing.yaml")


def test_unhealthy_devices_must_exist():
    """A typing error must not pass for a healthy cluster."""
    group = {"machine": "8x-l4", "count": 1, "unhealthy": [8]}
    with pytest.raises(ClusterSpecError, match=r"group 8x-l4: unhealthy GPU 8, expected 0\.\.7"):
        lay_out(ClusterSpec.model_validate({"groups": [group]}))
