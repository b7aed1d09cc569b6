"""No module escapes the import contracts of pyproject.toml."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("topology", "kube", "extender", "plugin", "kubectl_coterie")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINTER = PYPROJECT["tool"]["importlinter"]
CONTRACTS = LINTER["contracts"]
SHELLS = {
    "extender": (
        "extender.__main__",
        "extender.clocks",
        "extender.command_line",
        "extender.config",
        "extender.embedded.api_server",
        "extender.errors",
        "extender.execution",
        "extender.http",
        "extender.logkeys",
        "extender.observe",
        "extender.page",
        "extender.read_api",
        "extender.runtime",
        "extender.watch",
        "extender.wiring",
    ),
    "plugin": (
        "plugin.__main__",
        "plugin.node_plugin",
        "plugin.dependencies",
        "plugin.allocator",
        "plugin.clean",
        "plugin.command_line",
        "plugin.config",
        "plugin.deviceplugin",
        "plugin.errors",
        "plugin.health.watch",
        "plugin.kubelet",
        "plugin.kubelet_channel",
        "plugin.logkeys",
        "plugin.measure.pairs",
        "plugin.memory",
        "plugin.nvidia.container.cdi_files",
        "plugin.nvidia.container.dev_files",
        "plugin.nvidia.container.nvidia_ctk",
        "plugin.nvidia.container.written_files",
        "plugin.nvidia.evidence",
        "plugin.nvidia.nvml.errors",
        "plugin.nvidia.nvml.event_source",
        "plugin.nvidia.nvml.events",
        "plugin.nvidia.nvml.gpu",
        "plugin.nvidia.nvml.gpu_calls",
        "plugin.nvidia.nvml.library",
        "plugin.nvidia.nvml.reader",
        "plugin.nvidia.nvml.recorded_calls",
        "plugin.nvidia.nvml.timing",
        "plugin.nvidia.settings",
        "plugin.nvidia.vendor",
        "plugin.observe.endpoint",
        "plugin.observe.metrics",
        "plugin.observe.telemetry",
        "plugin.pb",
        "plugin.programs",
        "plugin.publish",
        "plugin.record.bundle",
        "plugin.record.command",
        "plugin.record.kernel_files",
        "plugin.record.recorder",
        "plugin.rediscovery",
        "plugin.simulated.reader",
        "plugin.sysfs",
        "plugin.vendor",
        "plugin.wiring",
    ),
}
"""What may use clocks, files, networks and logs, by program."""
READERS = {"pydantic", "yaml"}
"""What the programs may read messages and files with, and the core may not."""


def children(package):
    """The modules and packages directly inside a package."""
    found = (ROOT / package).iterdir()
    return {path.stem for path in found if path.suffix == ".py" or any(path.glob("**/*.py"))}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_module_has_its_layer(program):
    """A new module or package has a place among the others, or the contract fails."""
    (contract,) = [one for one in CONTRACTS if one.get("containers") == [program]]
    layers = re.findall(r"\w+", " ".join(contract["layers"]))
    assert sorted(layers) == sorted(children(program) - {"__init__"})
    assert contract["exhaustive"] is True


def test_cycles_are_looked_for_everywhere():
    """In every package that import-linter reads, at any depth."""
    (contract,) = [one for one in CONTRACTS if one["type"] == "acyclic_siblings"]
    assert contract["ancestors"] == LINTER["root_packages"]
    assert contract.keys() <= {"name", "type", "ancestors"}


@pytest.mark.parametrize("program", SHELLS)
def test_each_module_decides_or_is_a_shell(program):
    """A new module is named pure, and import-linter holds it to that, or is a shell on purpose."""
    (contract,) = [one for one in CONTRACTS if one["name"].startswith(f"The {program} decides")]
    pure, shells = contract["source_modules"], SHELLS[program]
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / program).rglob("*.py")
        if path.stem != "__init__"
    }
    found = {
        module: [one for one in (*pure, *shells) if f"{module}.".startswith(f"{one}.")]
        for module in modules
    }
    assert {module for module, ends in found.items() if len(ends) != 1} == set()
    assert {one for ends in found.values() for one in ends} == {*pure, *shells}


@pytest.mark.parametrize("program", SHELLS)
def test_deciding_modules_read_no_wall_clock(program):
    """Values may hold dates, so `datetime` may be imported; its clock may not be read."""
    (contract,) = [one for one in CONTRACTS if one["name"].startswith(f"The {program} decides")]
    calls = [
        f"{path}:{node.lineno}"
        for path in (ROOT / program).rglob("*.py")
        if f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}.".startswith(
            tuple(f"{one}." for one in contract["source_modules"])
        )
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr in {"now", "today", "utcnow"}
    ]
    assert calls == []


@pytest.mark.parametrize("program", SHELLS)
def test_what_decides_is_kept_from_the_same_libraries(program):
    """The two programs differ only in the libraries that they have."""
    (core,) = [one for one in CONTRACTS if one["name"].startswith("The core has no clock")]
    (contract,) = [one for one in CONTRACTS if one["name"].startswith(f"The {program} decides")]
    assert set(core["forbidden_modules"]) - READERS <= set(contract["forbidden_modules"])
