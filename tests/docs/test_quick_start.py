"""The commands of README's quick start and usage do what the page says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml

from extender import command_line
from tests.docs.markdown import ROOT, blocks
from tests.programs import called
from topology.annotations import parse_policy

README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "user-guide.md"


def recipe(target):
    """What make would run."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed here")
    command = [make, "--dry-run", "--always-make", "--no-print-directory", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_cluster_builds_only_what_it_runs():
    """README promises etcd and Kubernetes; `run` builds those itself."""
    assert "tests.cluster run" in recipe("cluster")
    assert "tests.cluster build" not in recipe("cluster")


@pytest.mark.parametrize(
    "target", re.findall(r"^make (\S+)", README.read_text(encoding="utf-8"), re.MULTILINE)
)
def test_each_target_of_the_quick_start_is_there(target):
    """A renamed target would greet a newcomer with an error."""
    assert recipe(target)


def test_the_pod_of_the_readme_finds_a_node(tmp_path):
    """Whoever tries it first must not see a pod that waits."""
    (pod,) = [block.text for block in blocks(README) if block.language == "yaml"]
    file = tmp_path / "pod.yaml"
    file.write_text(pod, encoding="utf-8")
    done = called(command_line.main, "explain", str(file), "--cluster", "1x dgx-1-v100, 1x 8x-l4")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["nodes"][0]["node"] == "dgx-1-v100-0"


def test_the_three_annotations_of_the_guide_are_read():
    """The first block of the page, which users copy."""
    first = next(block.text for block in blocks(GUIDE) if block.language == "yaml")
    annotations = yaml.safe_load(first)["metadata"]["annotations"]
    assert len(annotations) == 3
    assert parse_policy(annotations).min_bandwidth_gbytes_per_s == pytest.approx(40)
