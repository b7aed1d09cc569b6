"""Tests of `plugin.nvidia.sharing`."""

from __future__ import annotations

import pytest

from kube.errors import SettingsError
from plugin.machine import NO_SHARING
from plugin.nvidia.sharing import MAX_REPLICAS, read_sharing


def slicing(*resources, **flags):
    """The section with these resources."""
    return {"timeSlicing": {"resources": list(resources), **flags}}


GPU = {"name": "nvidia.com/gpu", "replicas": 4}


def test_defaults_are_those_of_nvidia():
    """Neither renamed nor limited to one, as api/config/v1/replicas.go has it."""
    read = read_sharing(slicing(GPU))
    assert (read.replicas, read.suffix, read.is_one_only, read.notes) == (
        {"nvidia.com/gpu": 4},
        "",
        False,
        (),
    )
    assert read.name_of("nvidia.com/gpu") == "nvidia.com/gpu"


def test_renaming_concerns_what_is_shared():
    """Other resources keep their names."""
    read = read_sharing(slicing(GPU, renameByDefault=True, failRequestsGreaterThanOne=True))
    assert read.name_of("nvidia.com/gpu") == "nvidia.com/gpu.shared"
    assert read.name_of("nvidia.com/mig-1g.10gb") == "nvidia.com/mig-1g.10gb"
    assert read.is_one_only


def test_several_resources_each_have_their_number():
    """MIG instances may be shared beside GPUs; a name without a domain gets the plugin's."""
    read = read_sharing(slicing(GPU, {"name": "mig-1g.10gb", "replicas": MAX_REPLICAS}))
    assert read.replicas == {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": MAX_REPLICAS}
    other = read_sharing(slicing({"name": "accel", "replicas": 2}), domain="example.com")
    assert other.replicas == {"example.com/accel": 2}


@pytest.mark.parametrize("section", [None, {}, {"timeSlicing": None}, {"mps": None}])
def test_an_absent_section_shares_nothing(section):
    """As the file may name the section and leave it empty."""
    assert read_sharing(section) is NO_SHARING


def test_what_nvidia_ignores_is_ignored_with_a_note():
    """`rename` and `devices` have no effect in NVIDIA's plugin either; `all` is the default."""
    read = read_sharing(slicing({**GPU, "rename": "x", "devices": [0, 1]}))
    assert read.replicas == {"nvidia.com/gpu": 4}
    assert [note.split(" is ignored")[0] for note in read.notes] == [
        "sharing.timeSlicing.resources[0].rename",
        "sharing.timeSlicing.resources[0].devices",
    ]
    assert read_sharing(slicing({**GPU, "devices": "all"})).notes == ()


@pytest.mark.parametrize(
    "section",
    [
        pytest.param({"mps": {"resources": [GPU]}}, id="MPS"),
        pytest.param([], id="a list"),
        pytest.param({"timeslicing": {}}, id="unknown key"),
        pytest.param({"timeSlicing": 3}, id="a number"),
        pytest.param({"timeSlicing": {}}, id="no resources"),
        pytest.param(slicing(), id="empty"),
        pytest.param(slicing("gpu"), id="a text"),
        pytest.param(slicing({"replicas": 2}), id="no name"),
        pytest.param(slicing({**GPU, "replicas": 1}), id="one"),
        pytest.param(slicing({**GPU, "replicas": 1025}), id="too many"),
        pytest.param(slicing({**GPU, "replicas": True}), id="a flag"),
        pytest.param(slicing({**GPU, "replicas": "4"}), id="a digit as text"),
        pytest.param(slicing({"name": "gpu"}), id="no replicas"),
        pytest.param(slicing({**GPU, "strategy": "x"}), id="unknown in resource"),
        pytest.param(slicing(GPU, {**GPU}), id="twice"),
        pytest.param(slicing({**GPU, "name": "a/b"}), id="other domain"),
        pytest.param(slicing(GPU, renameByDefault="yes"), id="rename"),
        pytest.param(slicing(GPU, failRequestsGreaterThanOne=1), id="fail"),
    ],
)
def test_anything_else_is_refused(section, check_message):
    """A configuration is understood or refused, never guessed at; the message names the place."""
    with pytest.raises(SettingsError) as caught:
        read_sharing(section)
    check_message(caught.value)
