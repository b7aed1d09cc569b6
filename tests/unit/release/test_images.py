"""What the engine is asked for: names, architectures, the base and the index."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from deploy.release import Identity, ImageOrder, ReleaseError, build_images

ROOT = Path(__file__).resolve().parents[3]
IDENTITY = Identity("0.3.1.dev5+g7ef49e1", "7" * 40, 1_700_000_000, None, ROOT)
DIGEST = "sha256:" + "1" * 64
ENGINE = f"""\
#!{sys.executable}
import json, pathlib, sys
with open("{{calls}}", "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
for word in sys.argv:
    if word.startswith("--digestfile="):
        pathlib.Path(word.partition("=")[2]).write_text("{DIGEST}\\n")
if sys.argv[1] == "rmi" or sys.argv[2] == "rm":
    sys.exit("no such image")
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Build into a folder with an engine that notes what it is asked for; images and its calls."""
    calls = tmp_path / "calls"
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "podman").write_text(ENGINE.replace("{calls}", str(calls)), encoding="utf-8")
    (programs / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")

    def run(order):
        built = build_images(order, IDENTITY, tmp_path / "out", lambda _text: None)
        return built, [json.loads(line) for line in calls.read_text("utf-8").splitlines()]

    return run


def test_each_image_is_built_for_all_architectures_and_written(build, tmp_path):
    """By the engine on PATH: a tag without `+`, dated as the commit, from the index of pip."""
    (image,), calls = build(ImageOrder(names=("plugin",), base="some/base@sha256:1"))
    removed, unlisted, built, written = calls
    assert (removed, unlisted) == (["rmi", "--force", image.name], ["manifest", "rm", image.name])
    assert image.name == "coterie/plugin:0.3.1.dev5-g7ef49e1"
    assert image.digest == DIGEST
    assert built[0] == "build"
    assert {
        "--platform=linux/amd64,linux/arm64",
        "--target=plugin",
        "--timestamp=1700000000",
        "--build-arg=BASE=some/base@sha256:1",
        "--build-arg=PIP_INDEX_URL=https://index.example/simple",
        "--build-arg=VERSION=0.3.1.dev5+g7ef49e1",
        f"--manifest={image.name}",
    } <= set(built)
    archive = tmp_path / "out" / "coterie-plugin-0.3.1.dev5-g7ef49e1.oci.tar"
    assert written[-2:] == [image.name, f"oci-archive:{archive}:{image.name}"]


def test_images_are_pushed_under_the_name_of_their_registry(build):
    """Both, where none is named."""
    images, calls = build(ImageOrder(registry="registry.example/team/", pushes=True))
    names = [
        f"registry.example/team/coterie/{one}:0.3.1.dev5-g7ef49e1" for one in ("extender", "plugin")
    ]
    assert [one.name for one in images] == names
    assert [one[-1] for one in calls if one[:2] == ["manifest", "push"]] == [
        f"docker://{name}" for name in names
    ]
    assert not any(word.startswith("--build-arg=BASE=") for one in calls for word in one)


def test_a_machine_without_an_engine_is_refused(build, monkeypatch, check_message):
    """Before anything is built."""
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(ReleaseError) as caught:
        build(ImageOrder())
    check_message(caught.value)
