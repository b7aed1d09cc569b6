"""Options of the command line: one for each setting, under all of its names."""

from __future__ import annotations

import pytest

from kube.settings import add_options, given_settings, go_booleans
from plugin.config import PluginSettings
from tests.programs import called
from topology.cli.program import Parser


def given(*words: str) -> dict[str, object]:
    """The settings that a command line gives."""
    parser = Parser(prog="serve")
    parser.add_argument("--other")
    add_options(parser, PluginSettings)
    return given_settings(PluginSettings, parser.parse_args(go_booleans(PluginSettings, words)))


def test_nothing_given():
    """Then every layer below counts."""
    assert given() == {}


def test_what_was_given_and_nothing_else():
    """Raw: settings judge values, not the command line."""
    flags = given("--mig-strategy=any", "--metrics-port", "0", "--other=y")
    assert flags == {"mig_strategy": "any", "metrics_port": "0"}


def test_other_names_and_the_file():
    """NVIDIA's older names, and the one option that is no setting."""
    flags = given("--nvidia-driver-root=/a", "--container-driver-root=/b", "--config-file=/c")
    assert flags == {"driver_root": "/a", "driver_root_ctr_path": "/b", "config_file": "/c"}


def test_lists_may_be_repeated():
    """As NVIDIA's plugin takes them."""
    flags = given("--device-list-strategy=envvar", "--device-list-strategy=cdi-cri")
    assert flags == {"device_list_strategy": ["envvar", "cdi-cri"]}


@pytest.mark.parametrize(
    ("words", "value"),
    [(["--gds-enabled"], "true"), (["--gds-enabled=false"], "false")],
)
def test_booleans(words, value):
    """Alone or with a value, but never with the next word."""
    assert given(*words) == {"gds_enabled": value}
    done = called(lambda words: given(*words), "--gds-enabled", "false")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: unrecognized arguments: false (see serve --help)\n",
    )


def test_what_follows_two_dashes_is_no_option():
    """As in Go."""
    words = ["--gds-enabled", "--imex-required=false", "--", "--gds-enabled"]
    assert go_booleans(PluginSettings, words) == ["--gds-enabled=true", *words[1:]]


@pytest.mark.parametrize("name", PluginSettings.model_fields)
def test_every_setting_has_its_option(name):
    """Made from the fields, so that none can be forgotten."""
    assert given(f"--{name.replace('_', '-')}=1") in ({name: "1"}, {name: ["1"]})


def test_an_option_says_what_it_takes_by_default_and_in_a_sentence():
    """The documentation has the rest."""
    parser = Parser()
    add_options(parser, PluginSettings, only={"device_list_strategy", "kubelet_port", "mps_root"})
    text = " ".join(parser.format_help().split())
    assert "--kubelet-port NUMBER Its TCP port (default 10250)." in text
    assert (
        "--device-list-strategy envvar|volume-mounts|cdi-annotations|cdi-cri[,...] "
        "How a container's devices are passed to its runtime; several ways are separated by "
        "commas (default envvar)."
    ) in text
    assert "it without MPS too." in text
    assert "--node-name" not in text
