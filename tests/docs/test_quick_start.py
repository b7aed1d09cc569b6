"""The commands of README's quick start and usage do what the page says."""

from __future__ import annotations

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


def test_explain_prints_what_the_readme_shows(tmp_path):
    """The same pod, the same cluster, the same lines."""
    (pod,) = [block.text for block in blocks(README) if block.language == "yaml"]
    (shown,) = [block.text for block in blocks(README) if block.language == "console"]
    file = tmp_path / "pod.yaml"
    file.write_text(pod, encoding="utf-8")
    (cluster,) = re.findall(r'--cluster "([^"]+)"', shown)
    (kept_by_grep,) = re.findall(r"grep -E '([^']+)'", shown)
    done = called(command_line.main, "explain", str(file), "--cluster", cluster)
    kept = [line.strip() for line in done.output.splitlines() if re.search(kept_by_grep, line)]
    assert kept == [line.strip() for line in shown.splitlines()[1:] if line.strip()]


def test_the_three_annotations_of_the_guide_are_read():
    """The first block of the page, which users copy."""
    first = next(block.text for block in blocks(GUIDE) if block.language == "yaml")
    annotations = yaml.safe_load(first)["metadata"]["annotations"]
    assert len(annotations) == 3
    assert parse_policy(annotations).min_bandwidth_gbytes_per_s == pytest.approx(40)
