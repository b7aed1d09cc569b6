"""Options of the command line: one for each setting, under NVIDIA's names too."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from plugin.config import Settings, go_booleans, takes_settings


def run(*words: str) -> tuple[dict[str, object], str]:
    """What a command was handed."""
    got: list[tuple[dict[str, object], str]] = []
    cli = typer.Typer()

    @cli.command()
    @takes_settings
    def serve(*, flags: dict[str, object], other: str = "x") -> None:
        """Serve."""
        got.append((flags, other))

    result = CliRunner().invoke(cli, go_booleans(words))
    assert result.exit_code == 0, result.output
    return got[0]


def test_nothing_given():
    """Then every layer below counts."""
    assert run() == ({}, "x")


def test_what_was_given_and_nothing_else():
    """Raw: settings judge values, not the command line."""
    flags, other = run("--mig-strategy=any", "--metrics-port", "0", "--other=y")
    assert flags == {"mig_strategy": "any", "metrics_port": "0"}
    assert other == "y"


def test_other_names_and_the_file():
    """NVIDIA's older names, and the one option that is no setting."""
    flags, _ = run("--nvidia-driver-root=/a", "--container-driver-root=/b", "--config-file=/c")
    assert flags == {"driver_root": "/a", "driver_root_ctr_path": "/b", "config_file": "/c"}


def test_lists_may_be_repeated():
    """As NVIDIA's plugin takes them."""
    flags, _ = run("--device-list-strategy=envvar", "--device-list-strategy=cdi-cri")
    assert flags == {"device_list_strategy": ["envvar", "cdi-cri"]}


@pytest.mark.parametrize(
    ("words", "value"),
    [(["--gds-enabled"], "true"), (["--gds-enabled=false"], "false")],
)
def test_booleans(words, value):
    """Alone or with a value, but never with the next word."""
    assert run(*words)[0] == {"gds_enabled": value}
    with pytest.raises(AssertionError, match="unexpected extra argument"):
        run("--gds-enabled", "false")


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_its_option(name):
    """Made from the fields, so that none can be forgotten."""
    flags, _ = run(f"--{name.replace('_', '-')}=1")
    assert flags in ({name: "1"}, {name: ["1"]})
