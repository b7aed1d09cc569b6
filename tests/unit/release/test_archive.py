"""Image archives: an OCI layout that holds what it names."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile

import pytest

from deploy.release.errors import ContentRefused
from deploy.release.oci import (
    ARCHITECTURES,
    File,
    ImageConfig,
    PlatformImage,
    architecture,
    pack,
    write_image,
)

CONFIG = ImageConfig(
    entrypoint=("program",),
    command=("run",),
    user="65532:65532",
    environment={"PATH": "/bin"},
    labels={"title": "an image"},
)
EPOCH = 1_700_000_000


@pytest.fixture
def write(tmp_path):
    """Writes an image of two layers for both architectures."""

    def make(file="image.tar", name="coterie.test/program:1.0"):
        low = pack({"low": File(b"low")}, tmp_path / "low")
        platforms = [
            PlatformImage(
                one,
                (
                    ("base", low),
                    ("own", pack({"own": File(one.name.encode())}, tmp_path / one.name)),
                ),
            )
            for one in ARCHITECTURES
        ]
        return write_image(tmp_path / file, name, platforms, CONFIG, epoch=EPOCH)

    return make


def content(image):
    """The files of an archive by path."""
    with tarfile.open(image.path) as archive:
        members = ((one.name, archive.extractfile(one)) for one in archive)
        return {name: member.read() for name, member in members if member}


def test_every_blob_has_the_digest_that_names_it(write):
    """Else nothing can be pulled from a registry that it was pushed to."""
    files = content(write())
    blobs = {path.removeprefix("blobs/sha256/"): data for path, data in files.items()}
    assert json.loads(blobs.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    blobs.pop("index.json")
    assert {digest: hashlib.sha256(data).hexdigest() for digest, data in blobs.items()} == {
        digest: digest for digest in blobs
    }


def test_an_image_names_a_manifest_for_each_architecture(write):
    """One name for all nodes; each takes its own."""
    image = write()
    files = content(image)

    def blob(described):
        data = files["blobs/sha256/" + described["digest"].removeprefix("sha256:")]
        assert len(data) == described["size"]
        return data

    (index,) = json.loads(files["index.json"])["manifests"]
    assert index["digest"] == image.digest
    assert index["annotations"] == {
        "io.containerd.image.name": "coterie.test/program:1.0",
        "org.opencontainers.image.ref.name": "1.0",
    }
    manifests = json.loads(blob(index))["manifests"]
    assert [one["platform"] for one in manifests] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "arm64", "os": "linux", "variant": "v8"},
    ]
    for described in manifests:
        manifest = json.loads(blob(described))
        config = json.loads(blob(manifest["config"]))
        assert config["architecture"] == described["platform"]["architecture"]
        assert config["config"] == {
            "User": "65532:65532",
            "Env": ["PATH=/bin"],
            "Entrypoint": ["program"],
            "Cmd": ["run"],
            "WorkingDir": "/",
            "Labels": {"title": "an image"},
        }
        assert config["created"] == "2023-11-14T22:13:20Z"
        assert [one["created_by"] for one in config["history"]] == ["base", "own"]
        unpacked = [_uncompressed(blob(layer)) for layer in manifest["layers"]]
        assert config["rootfs"] == {"type": "layers", "diff_ids": unpacked}


def _uncompressed(data):
    return "sha256:" + hashlib.sha256(gzip.decompress(data)).hexdigest()


def test_two_runs_write_the_same_file(write):
    """What is signed must be what anybody can build."""
    first, second = write(), write("other.tar")
    assert first.digest == second.digest
    assert first.path.read_bytes() == second.path.read_bytes()


def test_the_name_is_no_part_of_the_image(write):
    """A mirror has the same digest."""
    assert write().digest == write("other.tar", "registry.example/mirror/program:1.0").digest


def test_a_shared_layer_is_written_once(write):
    """The base is most of both."""
    assert len(content(write())) == len(("oci-layout", "index.json", "index")) + 2 * 2 + 3


def test_unknown_architectures_are_refused():
    """Before anything is downloaded for one."""
    with pytest.raises(ContentRefused, match="'s390x' is not supported, expected one of amd64"):
        architecture("s390x")
