"""The pages say what the code reads: annotation keys and values, examples that are valid."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from extender.config import ExtenderSettings
from extender.embedded import lay_out, read_cluster
from extender.protocol import Verb
from kube.objects import TEMPLATES, pod_of
from tests.docs.markdown import ROOT, blocks, section
from tests.docs.settings_table import table
from topology.annotations import POD_KEYS, Affinity, Strength, parse_policy
from topology.model import names, node_worth
from topology.recordings import load_recording, recording_names

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "configuration.md"
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "user-guide.md"
INSTALL = ROOT / "docs" / "install.md"


def pod_annotations() -> str:
    """The reference of the pod annotations: one row per key, then what each means."""
    rows = [(f"`{key.name}`", key.values, key.default) for key in POD_KEYS]
    parts = [table(("key", "values", "default"), rows)]
    for key in POD_KEYS:
        gap = "\n" if key.explanation.startswith("- ") else ""
        example = f"\nExample: `{key.name}: {json.dumps(key.example)}`.\n"
        parts.append(f"### `{key.name}`\n\n{key.summary}\n{gap}{key.explanation}{example}")
    return "\n" + "\n".join(parts) + "\n"


def test_pod_annotations_are_generated(check_golden):
    """A key that changes must change on the page too; `make golden` rewrites it."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), "pod annotations")
    check_golden(PAGE, before + pod_annotations() + after)


def worths() -> str:
    """What the GPUs of the recorded machines are worth, the most first."""
    gpus = [gpu for name in recording_names() for gpu in load_recording(name).gpus]
    known = {str(gpu.model): node_worth([gpu]).per_device for gpu in gpus}
    rows = [(f"`{model}`", f"{known[model]:.2f}") for model in sorted(known, key=known.__getitem__)]
    return f"\n{table(('model', 'worth'), reversed(rows))}\n"


def test_worths_are_generated(check_golden):
    """A figure that changes must change on the page too; `make golden` rewrites it."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), "worths")
    check_golden(PAGE, before + worths() + after)


def test_every_score_plugin_is_weighed():
    """The comment beside `weight` adds them up; the page says what each of them decides."""
    manifest = (ROOT / "deploy" / "kubeadm" / "scheduler-config.yaml").read_text(encoding="utf-8")
    (summed,) = re.findall(r"reach 1400 together\n\s+# \(([^)]*)\)", manifest)
    table_ = PAGE.read_text(encoding="utf-8").partition("| kube-scheduler's plugin |")[2]
    plugins = re.findall(r"[A-Z]\w+", summed)
    assert len(plugins) == 8
    assert [one for one in plugins if one not in table_.partition("\n\n")[0]] == []


def yaml_with(path: Path, key: str) -> Any:
    """The one YAML example of a page that has this key at the top."""
    examples = [yaml.safe_load(block.text) for block in blocks(path) if block.language == "yaml"]
    (example,) = [example for example in examples if key in example]
    return example


def test_pod_example_is_valid():
    """Users copy the first example they see."""
    pod = yaml_with(README, "spec")
    assert parse_policy(pod["metadata"]["annotations"]).affinity is Affinity.NVLINK
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {names.DEFAULT_RESOURCE: 4}


def test_job_example_is_valid():
    """The annotation belongs on the pod template, which is where users get it wrong."""
    job = yaml_with(GUIDE, "spec")
    assert job["kind"] == "Job"
    pod = pod_of(job)
    assert isinstance(pod, dict)
    policy = parse_policy(pod["metadata"]["annotations"])
    assert (policy.affinity, policy.strength) == (Affinity.NVLINK, Strength.REQUIRED)


def test_kinds_that_explain_reads_are_in_the_table():
    """With the path that it reads."""
    text = GUIDE.read_text(encoding="utf-8")
    row = r"^\| ([^|]+) \|[^|]*\| `([^`]+)\.metadata\.annotations`"
    rows = re.findall(row, text, re.MULTILINE)
    found = {kind: path for kinds, path in rows for kind in kinds.split(", ")}
    assert found.items() >= TEMPLATES.items()


def test_scheduler_example_matches_the_extender():
    """A wrong verb or port in the scheduler's configuration stops every GPU pod."""
    (extender,) = yaml_with(INSTALL, "extenders")["extenders"]
    verbs = [extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "bind")]
    assert verbs == [Verb.FILTER.value, Verb.PRIORITIZE.value, Verb.BIND.value]
    defaults = ExtenderSettings(cluster="1x dgx-h100")
    where = f"http://{defaults.listen_address}:{defaults.listen_port}"
    assert extender["urlPrefix"] == where
    assert tuple(r["name"] for r in extender["managedResources"]) == defaults.resources


def test_cluster_example_is_valid(tmp_path):
    """The example shows every key of the cluster file, so it must be one."""
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(yaml_with(PAGE, "groups")), encoding="utf-8")
    nodes = lay_out(read_cluster(file))
    assert [node.name for node in nodes][-3:] == ["old-v100-0", "old-v100-1", "unknown-0"]
