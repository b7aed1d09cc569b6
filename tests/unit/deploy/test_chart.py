"""The chart without Helm: its schema and values, the test pod."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.docs.chart_values import CHART, chart_values
from topology.annotations import ContainerPlan, Plan, encode_plan

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
METADATA = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
VALIDATOR = Draft7Validator(SCHEMA)
WAYS = sorted((CHART / "ci").glob("*.yaml"))
FREE = {
    "global",
    "extender.settings",
    "plugin.settings",
    "plugin.env",
    *(f"{part}.nodeSelector" for part in ("scheduler", "extender", "plugin")),
    *(f"{part}.podAnnotations" for part in ("scheduler", "extender", "plugin")),
    *(f"monitoring.{part}.labels" for part in ("podMonitor", "rules", "dashboards")),
    "monitoring.dashboards.annotations",
}
"""Values whose keys are the user's."""


# Schema and values


def objects(schema, path=""):
    """Every map of the schema with its path."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "object":
        yield path, schema
    for key, one in schema.get("properties", {}).items():
        yield from objects(one, f"{path}.{key}".lstrip("."))


def test_a_misspelt_value_is_an_error():
    """Ignored, it would be a default where its user believes in another value."""
    is_free = {
        path: one["additionalProperties"] is not False
        for path, one in objects(SCHEMA)
        if not path.endswith((".requests", ".limits"))
    }
    assert {path for path, free in is_free.items() if free} == FREE


def test_every_value_has_a_comment():
    """The comment is all that the reference on docs/chart.md has."""
    assert [one.path for one in chart_values() if not one.comment] == []


def test_schema_and_values_have_the_same_keys():
    """A value without a rule, or a rule for a value that is nowhere explained."""

    def keys(values, path=""):
        for key, value in values.items():
            name = f"{path}.{key}".lstrip(".")
            is_map = isinstance(value, dict) and name not in FREE and not key.endswith("resources")
            yield from keys(value, name) if is_map else [name]

    def ruled(schema, path=""):
        for key, one in schema["properties"].items():
            name = f"{path}.{key}".lstrip(".")
            inner = dict(objects(one)).get("", {})
            is_map = "properties" in inner and name not in FREE and not key.endswith("resources")
            yield from ruled(inner, name) if is_map else [name]

    assert sorted(ruled(SCHEMA)) == sorted(keys(DEFAULTS))


def test_defaults_are_valid():
    """With them alone only the registry and the tag are missing."""
    VALIDATOR.validate(DEFAULTS)


@pytest.mark.parametrize("path", WAYS, ids=lambda path: path.stem)
def test_ways_are_valid(path):
    """They are examples too."""
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "values",
    [
        {"moed": "audit"},
        {"mode": "kubernetes"},
        {"extender": {"replicas": 2}},
        {"image": {"registry": "registry.example", "tag": 1.0}},
        {"image": {"registry": "registry.example/coterie:1.0"}},
        {"scheduler": {"replicas": "2"}},
        {"plugin": {"kubelet": {"insecur": True}}},
        {"plugin": {"driverRoot": "run/nvidia"}},
        {"plugin": {"maxUnavailable": "0%"}},
        {"plugin": {"mode": ""}},
        {"node": {"namespace": ""}},
        {"plugin": {"tolerations": [{"key": "a", "efect": "NoSchedule"}]}},
        {"plugin": {"resources": {"request": {"cpu": 1}}}},
        {"plugin": {"settings": {"Log_Level": "debug"}}},
        {"extender": {"readApi": {"readers": [{"kind": "Team", "name": "ml"}]}}},
        {"extender": {"readApi": {"readers": [{"kind": "Group"}]}}},
        {"gpuResources": []},
        {"gpuResources": ["gpu"]},
        {"extender": {"image": {"digest": "sha256:1"}}},
        {"monitoring": {"podMonitor": {"interval": "30"}}},
        {"monitoring": {"podMonitor": {"interval": ""}}},
        {"monitoring": {"rules": {"runbooks": "https://docs.example"}}},
        {"monitoring": {"dashboards": {"labels": {"grafana_dashboard": 1}}}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(values):
    """Each by the schema, before anything is rendered."""
    assert not VALIDATOR.is_valid(values)


def test_the_chart_takes_versions_with_a_vendors_suffix():
    """`>=1.34.0` alone refuses v1.36.3-eks-1234567, which SemVer takes for a pre-release."""
    assert METADATA["kubeVersion"] == ">=1.34.0-0"
    assert METADATA["apiVersion"] == "v2"
    assert METADATA["annotations"]["artifacthub.io/license"] == "Apache-2.0"
    assert METADATA["version"] == METADATA["appVersion"] == "0.0.0"


def test_no_default_names_an_image_without_a_registry():
    """Such a name is pulled from a public registry, where anyone may own it."""
    assert DEFAULTS["image"]["registry"] == ""
    assert "." in DEFAULTS["scheduler"]["image"]["registry"]
    for path in (CHART / "templates").rglob("*.*"):
        for image in re.findall(r"^\s*(?:- )?image: (.*)$", path.read_text("utf-8"), re.MULTILINE):
            assert re.match(r'\{\{ (include "coterie\.(schedulerI|i)mage" |\$image)', image), path


# The pod of `helm test`

SCRIPT = CHART / "files" / "compare_plan.py"
PLANNED = ("GPU-1", "GPU-2::1")
"""Two GPUs, one of them time-sliced."""
CONTAINERS = (
    ContainerPlan("other", "nvidia.com/gpu", ("GPU-3",)),
    ContainerPlan("compare-plan", "nvidia.com/gpu", PLANNED),
)
PLAN = encode_plan(Plan("node", CONTAINERS, (*PLANNED, "GPU-3"), 1, 0.0))


def compared(text, **environ):
    """Run the script with this plan; its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={"PLAN": text, "BY_CDI": "false"} | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


NO_PLAN = "the pod has no plan (annotation coterie.gpu/plan): Coterie did not place it"
NO_TOPOLOGY = "the plan names no GPU: the node has no usable topology (coterie.gpu/topology)"
COUNTED_ONLY = encode_plan(Plan("node", (), (), 1, 0.0))


@pytest.mark.parametrize(
    ("code", "said", "text", "visible"),
    [
        pytest.param(0, "GPUs: GPU-1,GPU-2, as planned", PLAN, "GPU-2,GPU-1", id="as planned"),
        pytest.param(
            *(1, "GPUs: the plan says GPU-1,GPU-2, the container has GPU-1,GPU-3"),
            *(PLAN, "GPU-1,GPU-3"),
            id="another GPU",
        ),
        pytest.param(
            1, "GPUs: the plan says GPU-1,GPU-2, the container has", PLAN, "", id="no GPU"
        ),
        pytest.param(1, NO_PLAN, "", "GPU-1", id="placed by another scheduler"),
        pytest.param(1, NO_TOPOLOGY, COUNTED_ONLY, "GPU-1", id="counted only"),
    ],
)
def test_the_test_pod_compares_plan_and_container(code, said, text, visible):
    """It fails where the kubelet gave other GPUs than planned, and says which."""
    assert compared(text, NVIDIA_VISIBLE_DEVICES=visible) == (code, said)


def test_the_test_pod_counts_gpus_that_come_by_cdi():
    """No variable names them there, but each has its device node."""
    n_here = sum(bool(re.fullmatch(r"nvidia\d+", one.name)) for one in Path("/dev").iterdir())
    said = f"number of GPUs: the plan says 2, the container has {n_here}"
    if n_here == len(PLANNED):
        said = "number of GPUs: 2, as planned"
    assert compared(PLAN, BY_CDI="true") == (int(n_here != len(PLANNED)), said)


def test_the_test_pods_container_is_the_scripts():
    """The script finds its own container in the plan by name."""
    text = (CHART / "templates" / "tests" / "plan.yaml").read_text(encoding="utf-8")
    (name,) = re.findall(r'^CONTAINER = "(.*)"$', SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert f"- name: {name}\n" in text
