"""Which specifications on a node are ours: those that are as they were written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.container import CdiDevice, CdiDocument
from plugin.machine import WrittenFiles
from plugin.nvidia.container.cdi import CDI_VENDOR
from plugin.nvidia.container.cdi_files import CdiFiles
from plugin.nvidia.container.written_files import RECORD, written_files

if TYPE_CHECKING:
    from pathlib import Path

GPU = f"{CDI_VENDOR}-gpu.json"


def write(folder: Path, *classes: str) -> None:
    """Have the plugin write a specification of each class."""
    device = CdiDevice("GPU-0", ("/dev/nvidia0",))
    CdiFiles(folder).write([CdiDocument(CDI_VENDOR, one, (device,)) for one in classes])


def at(folder: Path, *names: str) -> tuple[str, ...]:
    """Paths in the folder."""
    return tuple(str(folder / name) for name in names)


@pytest.mark.parametrize(
    "record",
    ["", "[]", "{", '{"' + GPU + '": 1}', "\udcff"],
    ids=["empty", "list", "cut", "1", "x"],
)
def test_without_a_record_that_can_be_read_nothing_is_ours(tmp_path, record):
    """A file too few is removed rather than one too many."""
    write(tmp_path, "gpu")
    (tmp_path / RECORD).write_bytes(record.encode(errors="surrogateescape"))
    assert written_files(tmp_path).changed == at(tmp_path, GPU)
    (tmp_path / RECORD).unlink()
    assert written_files(tmp_path) == WrittenFiles(changed=at(tmp_path, GPU))


def test_a_new_start_records_what_is_there_already(tmp_path):
    """As after an upgrade from a version that recorded nothing: the content is ours."""
    write(tmp_path, "gpu")
    (tmp_path / RECORD).unlink()
    write(tmp_path, "gpu")
    assert written_files(tmp_path).own == at(tmp_path, GPU, RECORD)


def test_what_a_killed_plugin_left_half_written_is_of_no_use(tmp_path):
    """The contents of a folder before the folder; other vendors' files are not looked at."""
    (private := tmp_path / ".coterie-x1").mkdir()
    (private / "spec.json").write_text("{")
    (tmp_path / f"{GPU}.tmp").write_text("{")
    for name in ("nvidia.com-gpu.json", f"{CDI_VENDOR}-gpu.yaml", "spec.json.tmp"):
        (tmp_path / name).write_text("{}")
    names = (f"{GPU}.tmp", ".coterie-x1/spec.json", ".coterie-x1")
    assert written_files(tmp_path) == WrittenFiles(unused=at(tmp_path, *names))


def test_the_record_changes_with_the_files_only(tmp_path):
    """Each change makes every runtime read the whole folder; without files there is none."""
    write(tmp_path, "gpu")
    before = (tmp_path / RECORD).stat()
    assert json.loads((tmp_path / RECORD).read_text()).keys() == {GPU}
    write(tmp_path, "gpu")
    assert (tmp_path / RECORD).stat().st_mtime_ns == before.st_mtime_ns
    write(tmp_path)
    assert list(tmp_path.iterdir()) == []
