"""The vendored definitions are the published ones, and the code beside them is theirs."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "plugin" / "pb"
PROTOS = sorted(path.name for path in FOLDER.glob("*.proto"))
SUMS = dict(re.findall(r"`(\w+\.proto)`.*`([0-9a-f]{64})`", (FOLDER / "README.md").read_text()))


def test_the_definitions_are_unchanged():
    """Whoever edits a vendored file should have to say so in the page that names its source."""
    sums = {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in PROTOS}
    assert sums == SUMS


@pytest.mark.parametrize("name", PROTOS)
def test_the_generated_code_is_of_these_definitions(name, tmp_path):
    """What is committed must be what `make protos` makes, or a change would not reach the wire."""
    source = f"plugin/pb/{name}"
    out = (f"--python_out={tmp_path}", f"--pyi_out={tmp_path}")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *out, source],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    made = sorted((tmp_path / "plugin" / "pb").iterdir())
    assert len(made) == 2
    for path in made:
        assert (FOLDER / path.name).read_text() == path.read_text(), "run `make protos`"
