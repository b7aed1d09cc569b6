"""Settings files, NVIDIA's among them: read in full, and nothing silently passed over."""

from __future__ import annotations

import pytest

from kube.errors import SettingsError
from kube.settings import FileLayout
from kube.settings.file import FileContent, read_file
from plugin.config import PluginSettings

NAMES = {
    "flags.migStrategy": "mig_strategy",
    "flags.plugin.passDeviceSpecs": "pass_device_specs",
    "imex.channelIDs": "imex_channel_ids",
    "coterie.mode": "mode",
}
LAYOUT = PluginSettings.layout


@pytest.fixture
def parse(tmp_path):
    """Read a text as a file of the plugin's."""

    def read(text: str, names=NAMES, layout=LAYOUT) -> FileContent:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return read_file(path, names, layout)

    return read


def test_a_file_of_nvidias(parse):
    """With the sections that are not ours; JSON would do as well."""
    found = parse(
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
    )
    assert found.values == {
        "mig_strategy": "mixed",
        "pass_device_specs": True,
        "imex_channel_ids": [0],
        "mode": "reporter",
    }
    assert found.raw["sharing"] == {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4}]}}
    assert len(found.notes) == len(LAYOUT.ignored)
    assert all("no effect" in note for note in found.notes)
    assert any(note.startswith("resources") for note in found.notes)


@pytest.mark.parametrize("text", ["", "---", "# only a comment", "null"])
def test_an_empty_file_says_nothing(parse, text):
    """A ConfigMap may hold one."""
    assert parse(text) == FileContent()


@pytest.mark.parametrize("version", ["v1", "''", "null"])
def test_versions(parse, version):
    """NVIDIA's plugin takes a missing one for v1."""
    assert parse(f"version: {version}\nflags: {{}}").values == {}
    assert parse("flags: {}").values == {}


def test_null_says_nothing(parse):
    """As in Go, where it is a pointer to nothing: Helm writes such."""
    assert parse("flags: {migStrategy: null, plugin: null}\nsharing:") == FileContent()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: v2", "version is 'v2', expected v1"),
        ("version: 1", "version is 1, expected v1"),
        (
            "flags: {migStrategie: none}",
            "flags has unknown key 'migStrategie', expected one of: ",
        ),
        ("flag: {}", "the text has unknown key 'flag', expected one of: coterie, flags"),
        (
            "flags: {plugin: {migStrategy: none}}",
            "flags.plugin has unknown key 'migStrategy', expected one of: ",
        ),
        ("flags.migStrategy: none", "the text has unknown key "),
        ("flags: [migStrategy]", "flags is ['migStrategy'], expected an object"),
        ("[flags]", "the text is ['flags'], expected an object"),
        ("7", "the text is 7, expected an object"),
        ("coterie: {colour: red}", "coterie has unknown key 'colour', expected one of: "),
        ("1: 2", "the text has unknown key "),
        ("flags: {migStrategy: none, migStrategy: mixed}", "key 'migStrategy' is given twice"),
        ("flags: {", "line 1, column 9: expected the node content"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("a: 2026-13-45", "month must be in 1..12"),
        ("{[a]: b}", "found unhashable key"),
        ("[" * 600, "nested too deeply"),
    ],
)
def test_what_is_refused(parse, text, message):
    """By its place, in one line."""
    with pytest.raises(SettingsError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_may_be_repeated_in_another_section(parse):
    """Twice means twice in one mapping."""
    names = {"a.x": "one", "b.x": "two"}
    assert parse("a: {x: 1}\nb: {x: 2}", names).values == {"one": 1, "two": 2}


def test_a_flat_file_has_neither_version_nor_sections(parse):
    """As the extender's: a key is a setting."""
    layout = FileLayout(flag="config", variable="CONFIG", prefix="")
    assert parse("mode: x", {"mode": "mode"}, layout).values == {"mode": "x"}
    for text in ("version: v1", "flags: {}", "sharing: {}"):
        with pytest.raises(SettingsError, match="the text has unknown key "):
            parse(text, {"mode": "mode"}, layout)
