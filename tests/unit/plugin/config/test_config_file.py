"""NVIDIA's configuration file: read in full, and nothing silently passed over."""

from __future__ import annotations

import pytest

from plugin.config.config_file import NOT_OURS, ConfigFile, parse_config
from plugin.errors import SettingsError

NAMES = {
    "flags.migStrategy": "mig_strategy",
    "flags.plugin.passDeviceSpecs": "pass_device_specs",
    "imex.channelIDs": "imex_channel_ids",
    "coterie.mode": "mode",
}


def test_a_file_of_nvidias():
    """With the sections that are not ours; JSON would do as well."""
    found = parse_config(
        """
version: v1
flags:
  migStrategy: mixed
  plugin: {passDeviceSpecs: true}
  gfd: {oneshot: false, sleepInterval: 60s}
  useNodeFeatureAPI: true
resources:
  gpus: [{pattern: "*", name: gpu}]
sharing:
  timeSlicing: {resources: [{name: gpu, replicas: 4}]}
imex: {channelIDs: [0]}
coterie: {mode: reporter}
""",
        NAMES,
    )
    assert found.values == {
        "mig_strategy": "mixed",
        "pass_device_specs": True,
        "imex_channel_ids": [0],
        "mode": "reporter",
    }
    assert found.sharing == {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4}]}}
    assert len(found.notes) == len(NOT_OURS)
    assert all("no effect" in note for note in found.notes)
    assert any(note.startswith("resources") for note in found.notes)


@pytest.mark.parametrize("text", ["", "---", "# only a comment", "null"])
def test_an_empty_file_says_nothing(text):
    """A ConfigMap may hold one."""
    assert parse_config(text, NAMES) == ConfigFile()


@pytest.mark.parametrize("version", ["v1", "''", "null"])
def test_versions(version):
    """NVIDIA's plugin takes a missing one for v1."""
    assert parse_config(f"version: {version}\nflags: {{}}", NAMES).values == {}
    assert parse_config("flags: {}", NAMES).values == {}


def test_null_says_nothing():
    """As in Go, where it is a pointer to nothing: Helm writes such."""
    assert parse_config("flags: {migStrategy: null, plugin: null}\nsharing:", NAMES) == ConfigFile()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: v2", "version is 'v2', expected v1"),
        ("version: 1", "version is 1, expected v1"),
        ("flags: {migStrategie: none}", "flags.migStrategie is 'none', expected no such key"),
        ("flag: {}", "flag is {}, expected no such key"),
        ("flags: {plugin: {migStrategy: none}}", "flags.plugin.migStrategy is 'none', expected no"),
        ("flags.migStrategy: none", "expected no such key"),
        ("flags: [migStrategy]", "flags is ['migStrategy'], expected an object"),
        ("[flags]", "the text is ['flags'], expected an object"),
        ("7", "the text is 7, expected an object"),
        ("coterie: {colour: red}", "coterie.colour is 'red', expected no such key"),
        ("1: 2", "expected no such key"),
        ("flags: {migStrategy: none, migStrategy: mixed}", "key 'migStrategy' is given twice"),
        ("flags: {", "line 1, column 9: expected the node content"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("a: 2026-13-45", "month must be in 1..12"),
        ("{[a]: b}", "found unhashable key"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_what_is_refused(text, message):
    """By its place, in one line."""
    with pytest.raises(SettingsError) as caught:
        parse_config(text, NAMES)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_may_be_repeated_in_another_section():
    """Twice means twice in one mapping."""
    names = {"a.x": "one", "b.x": "two"}
    assert parse_config("a: {x: 1}\nb: {x: 2}", names).values == {"one": 1, "two": 2}
