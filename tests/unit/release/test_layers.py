"""Packed archives: the bytes depend on the content and on nothing else."""

from __future__ import annotations

import os
import tarfile

import pytest

from deploy.release.errors import ContentRefused
from deploy.release.oci import Entry, File, Folder, Link, folder_tree, pack

TREE: dict[str, Entry] = {
    "etc/passwd": File(b"root:x:0:0:root:/root:/sbin/nologin\n"),
    "bin": Link("usr/bin"),
    "tmp": Folder(0o1777),
    "usr/bin/program": File(b"\x7fELF", 0o755),
    "usr/share/gr\u00fc\u00dfe": File(b""),
}


def headers(packed):
    """Each entry's header by path, in order."""
    with tarfile.open(packed.path) as archive:
        return {one.name: one for one in archive}


def test_a_small_tree_has_these_bytes(tmp_path):
    """A change here changes every layer, and each node pulls all of them again."""
    packed = pack(TREE, tmp_path / "layer")
    assert packed.diff_id == (
        "sha256:4b7ad2e07c2bdc9713127d5506c3a65ee02bd56560b984cf2db891c73dbe015f"
    )
    assert packed.unpacked == 40
    assert packed.size == (tmp_path / "layer").stat().st_size


def test_order_and_place_do_not_show(tmp_path):
    """Two runs, two machines, two folders."""
    (tmp_path / "elsewhere").mkdir()
    first = pack(TREE, tmp_path / "layer")
    second = pack(dict(reversed(TREE.items())), tmp_path / "elsewhere" / "other")
    assert (first.digest, first.diff_id) == (second.digest, second.diff_id)
    assert first.path.read_bytes() == second.path.read_bytes()


@pytest.mark.parametrize(
    ("name", "kind", "mode"),
    [
        pytest.param("etc/passwd", tarfile.REGTYPE, 0o644, id="a file stays a file"),
        pytest.param("etc", tarfile.DIRTYPE, 0o755, id="a folder that no entry names is there"),
        pytest.param("tmp", tarfile.DIRTYPE, 0o1777, id="a folder keeps the mode that it has"),
        pytest.param("usr/bin/program", tarfile.REGTYPE, 0o755, id="a program is executable"),
        pytest.param("bin", tarfile.SYMTYPE, 0o777, id="a link stays a link"),
    ],
)
def test_entries_belong_to_root_and_have_one_date(tmp_path, name, kind, mode):
    """Whoever builds, with whatever umask."""
    header = headers(pack(TREE, tmp_path / "layer", epoch=1_700_000_000))[name]
    assert (header.type, header.mode) == (kind, mode)
    assert (header.uid, header.gid, header.uname, header.gname) == (0, 0, "", "")
    assert header.mtime == 1_700_000_000


def test_entries_are_sorted_and_folders_come_before_their_files(tmp_path):
    """Runtimes unpack in the order of the archive."""
    names = list(headers(pack(TREE, tmp_path / "layer")))
    assert names == sorted(names)
    assert names.index("usr/bin") < names.index("usr/bin/program")


def test_a_folder_is_read_as_it_is(tmp_path):
    """Except for owners, dates and the bits that the umask sets."""
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "program").write_bytes(b"#!")
    (source / "program").chmod(0o4710)
    (source / "text").write_bytes(b"text")
    (source / "text").chmod(0o600)
    (source / "link").symlink_to("text")
    assert folder_tree(source, "opt/x") == {
        "opt/x/empty": Folder(),
        "opt/x/program": File(source / "program", 0o755),
        "opt/x/text": File(source / "text", 0o644),
        "opt/x/link": Link("text"),
    }


def test_dates_and_umask_of_a_folder_do_not_show(tmp_path):
    """Two checkouts of a commit differ in both."""
    packed = []
    for number, (mode, seconds) in enumerate(((0o644, 1), (0o660, 2_000_000_000))):
        source = tmp_path / str(number)
        source.mkdir()
        file = source / "file"
        file.write_bytes(b"same")
        file.chmod(mode)
        os.utime(file, (seconds, seconds))
        packed.append(pack(folder_tree(source), tmp_path / f"layer-{number}").digest)
    assert packed[0] == packed[1]


def test_what_is_no_file_is_refused(tmp_path):
    """A layer with a socket or a pipe would start nowhere."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ContentRefused, match=r"pipe has file type \d+, expected a file or folder"):
        folder_tree(tmp_path)


@pytest.mark.parametrize("path", ["/etc/passwd", "../etc", "a/../../b", "a//b", "a/", ""])
def test_paths_that_leave_the_root_are_refused(tmp_path, path):
    """Whoever unpacks would write elsewhere."""
    with pytest.raises(ContentRefused, match="expected one from the root"):
        pack({path: File(b"")}, tmp_path / "layer")


def test_nothing_lies_below_a_file(tmp_path):
    """A runtime says `is not a directory` then, and not which."""
    with pytest.raises(ContentRefused, match="'a/b' is below 'a', which is no folder"):
        pack({"a": File(b""), "a/b": File(b"")}, tmp_path / "layer")
