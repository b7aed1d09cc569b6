"""docs/plugin.md shows the plugin's settings, and NVIDIA's names of them, as the code has them."""

from __future__ import annotations

import re

import pytest
import yaml

from kube.settings import names_of
from plugin.config import PluginSettings, load_settings
from tests.docs.markdown import ROOT, blocks, section
from tests.docs.plugin_tables import nvidia_section, own_section

PAGE = ROOT / "docs" / "plugin.md"
SECTIONS = {"nvidia names": nvidia_section, "plugin settings": own_section}
EXAMPLES = [block.text for block in blocks(PAGE) if "version: v1" in block.text]


@pytest.mark.parametrize("name", SECTIONS)
def test_settings_are_generated(check_golden, name):
    """A field that changes must change on the page too; `make golden` rewrites it."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), name)
    check_golden(PAGE, before + SECTIONS[name]() + after)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_of_the_file_can_be_read(tmp_path, text):
    """What a reader copies must start."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert load_settings({"config_file": str(path)}, {}).notes == ()
    assert yaml.safe_load(text)["version"] == "v1"


def test_there_is_an_example():
    """Else the test above says nothing."""
    assert len(EXAMPLES) == 1


def test_every_variable_on_the_page_is_one():
    """Prose names settings too."""
    named = set(re.findall(r"COTERIE_PLUGIN_[A-Z_]+", PAGE.read_text(encoding="utf-8")))
    known = {variable for names in names_of(PluginSettings).values() for variable in names.env}
    assert named
    assert named - known - {"COTERIE_PLUGIN_"} == set()
