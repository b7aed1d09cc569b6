"""Writing specifications: whole, only ours, only when they change."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from plugin.container import CdiDevice, CdiDocument, cdi_body
from plugin.errors import CdiError
from plugin.nvidia.container.cdi import CDI_VENDOR, IMEX_CLASS
from plugin.nvidia.container.cdi_files import CdiFiles, CdiGenerator, CdiRules, open_cdi_files
from plugin.nvidia.container.nvidia_ctk import CtkOptions, NvidiaCtk
from plugin.nvidia.container.written_files import RECORD

if TYPE_CHECKING:
    from pathlib import Path

GPU = "k8s.device-plugin.nvidia.com-gpu.json"
IMEX = "k8s.device-plugin.nvidia.com-imex-channel.json"


def document(*names: str, cdi_class: str = "gpu") -> CdiDocument:
    """One with a device of each name."""
    return CdiDocument(
        CDI_VENDOR, cdi_class, tuple(CdiDevice(name, ("/dev/nvidia0",)) for name in names)
    )


def names(folder: Path) -> list[str]:
    """What lies in the folder beside the record of what was written (`test_written_files`)."""
    return sorted(path.name for path in folder.iterdir() if path.name != RECORD)


def test_documents_are_written(tmp_path):
    """As JSON that every user may read, in a folder that is made."""
    folder = tmp_path / "run/cdi"
    documents = [document("GPU-0"), document("0", cdi_class="imex-channel")]
    CdiFiles(folder).write(documents)
    assert names(folder) == [GPU, IMEX]
    assert json.loads((folder / GPU).read_text()) == cdi_body(documents[0])
    assert json.loads((folder / IMEX).read_text()) == cdi_body(documents[1])
    assert (folder / GPU).stat().st_mode & 0o777 == 0o644


def test_a_restricted_umask_does_not_hide_them(tmp_path):
    """The runtime may run as another user."""
    before = os.umask(0o077)
    try:
        CdiFiles(tmp_path).write([document("GPU-0")])
    finally:
        os.umask(before)
    assert (tmp_path / GPU).stat().st_mode & 0o777 == 0o644


def test_a_file_is_replaced_never_changed(tmp_path):
    """Whoever has it open reads one whole version."""
    files = CdiFiles(tmp_path)
    files.write([document("GPU-0")])
    with (tmp_path / GPU).open() as reader:
        files.write([document("GPU-0", "GPU-1")])
        assert len(json.load(reader)["devices"]) == 1
    assert len(json.loads((tmp_path / GPU).read_text())["devices"]) == 2
    assert names(tmp_path) == [GPU]


def test_what_would_not_change_is_left_alone(tmp_path):
    """Each change makes every runtime read the whole folder."""
    files = CdiFiles(tmp_path)
    files.write([document("GPU-0")])
    before = (tmp_path / GPU).stat()
    files.write([document("GPU-0")])
    after = (tmp_path / GPU).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_ours_that_nothing_stands_for_are_removed(tmp_path):
    """An IMEX channel that was switched off must not stay on offer; others' files are theirs."""
    others = ["nvidia.com-gpu.json", "k8s.device-plugin.nvidia.com-gpu.yaml", "vendor.json"]
    for name in others:
        (tmp_path / name).write_text("{}")
    files = CdiFiles(tmp_path)
    files.write([document("GPU-0"), document("0", cdi_class="imex-channel")])
    files.write([document("GPU-0")])
    assert names(tmp_path) == sorted([*others, GPU])
    files.write([])
    assert names(tmp_path) == sorted(others)


def test_a_half_written_file_of_a_crash_is_no_obstacle(tmp_path):
    """It is written over, and no runtime takes it for a specification."""
    (tmp_path / f"{GPU}.tmp").write_text("half")
    CdiFiles(tmp_path).write([document("GPU-0")])
    assert names(tmp_path) == [GPU]


@pytest.mark.parametrize("documents", [[document("GPU-0")], []], ids=["written", "removed"])
def test_what_cannot_be_written_or_removed_is_reported(tmp_path, documents):
    """With the folder in the sentence."""
    (tmp_path / GPU).mkdir()
    with pytest.raises(CdiError, match=str(tmp_path)):
        CdiFiles(tmp_path).write(documents)


def test_a_folder_that_cannot_be_made(tmp_path):
    """A file is in its place."""
    (tmp_path / "cdi").write_text("")
    with pytest.raises(CdiError, match="cannot be written"):
        CdiFiles(tmp_path / "cdi").write([document("GPU-0")])


MAKING = """for word; do
  case $word in --output=*) printf made >"${word#--output=}" ;; esac
done
"""


def tool(tmp_path: Path, text: str) -> NvidiaCtk:
    """A script in the place of NVIDIA's tool."""
    program = tmp_path / "nvidia-ctk"
    program.write_text(text)
    program.chmod(0o755)
    return NvidiaCtk(program)


def test_nvidias_tool_makes_the_texts(tmp_path):
    """Of all but IMEX channels; nothing else of it stays in the folder."""
    script = f"#!/bin/sh\n{MAKING}"
    folder = tmp_path / "cdi"
    CdiFiles(folder, tool=tool(tmp_path, script)).write(
        [
            document("GPU-0"),
            document("all", cdi_class="gds"),
            document("0", cdi_class="imex-channel"),
        ]
    )
    assert names(folder) == ["k8s.device-plugin.nvidia.com-gds.json", GPU, IMEX]
    assert (folder / GPU).read_text() == "made"
    assert json.loads((folder / IMEX).read_text())["kind"].endswith("imex-channel")


def test_a_tool_that_fails_leaves_the_files_as_they_were(tmp_path):
    """Containers that run are started again by the old ones."""
    folder = tmp_path / "cdi"
    CdiFiles(folder).write([document("GPU-0"), document("0", cdi_class="imex-channel")])
    before = (folder / GPU).read_text()
    with pytest.raises(CdiError, match="ended with 1"):
        CdiFiles(folder, tool=tool(tmp_path, "#!/bin/sh\nexit 1\n")).write([document("GPU-1")])
    assert (folder / GPU).read_text() == before
    assert names(folder) == [GPU, IMEX]


LOGGING = f'#!/bin/sh\nprintf "%s\\n" "$*" >>"$0.log"\n{MAKING}'


def opened(tmp_path, monkeypatch, *, has_tool: bool, **rules):
    """What lands in the file of the GPUs, on a machine with or without the tool."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin" if has_tool else str(tmp_path / "none"))
    if has_tool:
        tool(tmp_path, LOGGING)
    folder = tmp_path / "cdi"
    open_cdi_files(CdiRules(folder, **rules)).write([document("GPU-0")])
    return (folder / GPU).read_text()


@pytest.mark.parametrize(
    ("generator", "has_tool", "is_made_by_it"),
    [
        (CdiGenerator.AUTO, True, True),
        (CdiGenerator.AUTO, False, False),
        (CdiGenerator.NVIDIA_CTK, True, True),
        (CdiGenerator.OWN, True, False),
        (CdiGenerator.OWN, False, False),
    ],
)
def test_which_tool_makes_the_specifications(
    tmp_path, monkeypatch, generator, has_tool, is_made_by_it
):
    """As the setting says, and by itself the tool where there is one."""
    text = opened(tmp_path, monkeypatch, has_tool=has_tool, generator=generator)
    assert (text == "made") is is_made_by_it


@pytest.mark.parametrize(
    "rules",
    [
        {"generator": CdiGenerator.NVIDIA_CTK},
        {"options": CtkOptions(feature_flags=("x",))},
        {"options": CtkOptions(disabled_hooks=("chmod",))},
    ],
)
def test_a_configured_tool_must_exist(tmp_path, monkeypatch, rules):
    """What is configured cannot be done without it."""
    with pytest.raises(CdiError, match="expected it on the path"):
        opened(tmp_path, monkeypatch, has_tool=False, **rules)


def test_the_hosts_tool_stands_in_for_the_images(tmp_path, monkeypatch):
    """As the GPU operator installs it."""
    toolkit = tmp_path / "toolkit"
    toolkit.mkdir()
    tool(toolkit, LOGGING.replace("printf made", "echo made"))
    monkeypatch.setenv("PATH", "/none")
    rules = CdiRules(tmp_path / "cdi", CdiGenerator.NVIDIA_CTK, toolkit=toolkit)
    texts = open_cdi_files(rules).write([document("GPU-0"), document("0", cdi_class=IMEX_CLASS)])
    assert texts.keys() == {"gpu", IMEX_CLASS}
    assert texts["gpu"] == (tmp_path / "cdi" / GPU).read_text() == "made\n"


def test_rules_reach_the_tool(tmp_path, monkeypatch):
    """The driver is read where we see it, if we see it there at all."""
    seen = tmp_path / "driver-root"
    (seen / "dev").mkdir(parents=True)
    opened(
        tmp_path,
        monkeypatch,
        has_tool=True,
        options=CtkOptions(hook_path="/opt/hook", feature_flags=("f",), disabled_hooks=("h",)),
        driver_root=tmp_path,
        seen_driver_root=seen,
    )
    generate, transform = (tmp_path / "nvidia-ctk.log").read_text().splitlines()
    assert f"--driver-root={seen} --dev-root={seen} --nvidia-cdi-hook-path=/opt/hook" in generate
    assert "--feature-flag=f --disable-hook=h" in generate
    assert f"--from={seen} --to={tmp_path}" in transform


def test_a_driver_root_that_is_not_mounted(tmp_path, monkeypatch):
    """Then the driver is looked for where this process runs."""
    opened(tmp_path, monkeypatch, has_tool=True, seen_driver_root=tmp_path / "none")
    assert "--driver-root=/ --dev-root=/ " in (tmp_path / "nvidia-ctk.log").read_text()
