"""NVIDIA's tool: how it is called, and what its failures become. A script stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugin.errors import CdiError
from plugin.nvidia.container.device_nodes import IdStrategy
from plugin.nvidia.container.nvidia_ctk import CtkOptions, DriverRoots, NvidiaCtk, find_nvidia_ctk

SCRIPT = """#!/bin/sh
printf '%s\\n' "$*" >>"$0.log"
for word in "$@"; do
  case "$word" in
    --output=*) printf '{"calls": %s}' "$(wc -l <"$0.log")" >"${word#--output=}" ;;
  esac
done
"""


def fake(tmp_path: Path, text: str = SCRIPT) -> Path:
    """A program that notes how it was called."""
    path = tmp_path / "nvidia-ctk"
    path.write_text(text)
    path.chmod(0o755)
    return path


def calls(program: Path) -> list[list[str]]:
    """The arguments of every call so far."""
    log = program.with_name(f"{program.name}.log")
    return [line.split(" ") for line in log.read_text().splitlines()]


def test_a_driver_on_the_host(tmp_path):
    """One call, with every flag that NVIDIA's own plugin would set."""
    program = fake(tmp_path)
    text = NvidiaCtk(program).specification("gpu", tmp_path)
    assert text == '{"calls": 1}'
    assert calls(program) == [
        [
            "cdi",
            "generate",
            f"--output={tmp_path}/gpu.json",
            "--format=json",
            "--vendor=k8s.device-plugin.nvidia.com",
            "--class=gpu",
            "--device-name-strategy=uuid",
            "--driver-root=/",
            "--dev-root=/",
            "--nvidia-cdi-hook-path=/usr/bin/nvidia-ctk",
        ]
    ]


def test_settings_become_flags(tmp_path):
    """Names of devices, feature flags and hooks that are not wanted."""
    program = fake(tmp_path)
    options = CtkOptions(
        hook_path="/opt/hook",
        strategy=IdStrategy.INDEX,
        feature_flags=("disable-nvsandboxutils",),
        disabled_hooks=("chmod", "enable-cuda-compat"),
    )
    NvidiaCtk(program, options=options).specification("gpu", tmp_path)
    assert calls(program)[0][6:] == [
        "--device-name-strategy=index",
        "--driver-root=/",
        "--dev-root=/",
        "--nvidia-cdi-hook-path=/opt/hook",
        "--feature-flag=disable-nvsandboxutils",
        "--disable-hook=chmod",
        "--disable-hook=enable-cuda-compat",
    ]


def test_an_extra_has_its_own_mode(tmp_path):
    """The tool finds its device nodes, and the files that belong to them."""
    program = fake(tmp_path)
    NvidiaCtk(program).specification("gds", tmp_path)
    assert {"--mode=gds", "--class=gds"} < set(calls(program)[0])


@pytest.mark.parametrize(
    ("roots", "moves"),
    [
        (
            DriverRoots(
                Path("/run/nvidia/driver"),
                Path("/run/nvidia/driver"),
                Path("/driver-root"),
                Path("/driver-root"),
            ),
            [("/driver-root", "/run/nvidia/driver")],
        ),
        (
            DriverRoots(Path("/opt/driver"), Path("/"), Path("/driver-root"), Path("/")),
            [("/driver-root", "/opt/driver")],
        ),
        (
            DriverRoots(Path("/"), Path("/elsewhere"), Path("/driver-root"), Path("/")),
            [("/driver-root", "/"), ("/dev", "/elsewhere/dev")],
        ),
        (DriverRoots(), []),
    ],
    ids=["driver container", "driver beside the host's /dev", "both elsewhere", "host"],
)
def test_paths_are_turned_into_those_of_the_host(tmp_path, roots, moves):
    """The runtime reads them on the host, the tool found them in the plugin's container."""
    program = fake(tmp_path)
    NvidiaCtk(program, roots).specification("gpu", tmp_path)
    generate, *transforms = calls(program)
    assert f"--driver-root={roots.seen_driver}" in generate
    assert f"--dev-root={roots.seen_dev}" in generate
    path = tmp_path / "gpu.json"
    assert transforms == [
        [
            *("cdi", "transform", "root", "--relative-to=host", f"--from={seen}", f"--to={host}"),
            *(f"--input={path}", f"--output={path}"),
        ]
        for seen, host in moves
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "#!/bin/sh\necho one >&2\necho 'no NVML' >&2\nexit 3\n",
            "ended with 3, expected 0: 'no NVML'$",
        ),
        ("#!/bin/sh\necho said\nexit 1\n", "ended with 1, expected 0: 'said'$"),
        (f"#!/bin/sh\necho {'x' * 400}end >&2\nexit 1\n", ": 'x{297}end'$"),
        ("#!/bin/sh\n", "left no specification of class gpu"),
        ("#!/no/such/shell\n", "cannot be started"),
    ],
    ids=["error on stderr", "error on stdout", "long error", "no file", "cannot run"],
)
def test_failures(tmp_path, text, message):
    """Said in one sentence, with the last line of what the tool said."""
    with pytest.raises(CdiError, match=message):
        NvidiaCtk(fake(tmp_path, text)).specification("gpu", tmp_path)


def test_a_tool_that_hangs(tmp_path):
    """NVML of a sick machine may never come back."""
    tool = NvidiaCtk(fake(tmp_path, "#!/bin/sh\nexec sleep 60\n"), timeout_s=0.05)
    with pytest.raises(CdiError, match=r"cdi generate: no end after 0\.05 s"):
        tool.specification("gpu", tmp_path)


def test_bytes_that_are_no_text(tmp_path):
    """Not a traceback."""
    script = SCRIPT.replace("'{\"calls\": %s}'", "'\\377%s'")
    with pytest.raises(CdiError, match="left no specification"):
        NvidiaCtk(fake(tmp_path, script)).specification("gpu", tmp_path)


def test_finding_it(tmp_path, monkeypatch):
    """The image's own, else the host's: the program itself, where the other is a script."""
    monkeypatch.setenv("PATH", str(tmp_path))
    toolkit = tmp_path / "toolkit"
    assert find_nvidia_ctk(toolkit) is None
    toolkit.mkdir()
    script = fake(toolkit)
    assert find_nvidia_ctk(toolkit) == script
    real = toolkit / "nvidia-ctk.real"
    script.rename(real)
    fake(toolkit)
    assert find_nvidia_ctk(toolkit) == real
    program = fake(tmp_path)
    assert find_nvidia_ctk(toolkit) == program
