"""The JSON of the command line: schemas are documented, and what any machine gives keeps them."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter

from tests.examples import up_to
from tests.strategies import node_topologies
from topology.audit import GainReport, gain, report_gain
from topology.errors import InvalidRequest
from topology.recordings import load_recording, recording_names
from topology.report import group_values
from topology.report import values as report
from topology.report.compute import (
    BestQuery,
    report_best,
    report_rank,
    report_value,
)
from topology.report.group import report_group
from topology.report.group_values import GroupReport
from topology.report.machine import report_recordings, report_show
from topology.report.values import (
    BestReport,
    RankReport,
    RecordingsReport,
    ShowReport,
    ValueReport,
)

for module in (report, group_values, gain):
    for name in module.__all__:
        # Only these tests know pydantic: it turns the classes and their docstrings into schemas.
        if isinstance(getattr(module, name), type):
            getattr(module, name).__pydantic_config__ = ConfigDict(
                use_attribute_docstrings=True, strict=True
            )

ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "gain": TypeAdapter(GainReport),
    "show": TypeAdapter(ShowReport),
    "value": TypeAdapter(ValueReport),
    "value-nodes": TypeAdapter(GroupReport),
    "best": TypeAdapter(BestReport),
    "rank": TypeAdapter(RankReport),
    "recordings": TypeAdapter(RecordingsReport),
}


def check(command, answer):
    """Read a report's JSON back as strictly as its schema says, and get the same report."""
    assert ADAPTERS[command].validate_json(json.dumps(asdict(answer))) == answer


@pytest.mark.parametrize("command", ADAPTERS)
def test_schema_is_documented(command, root, check_golden):
    """Programs that read the output are written against docs/schemas."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= ADAPTERS[command].json_schema(mode="serialization")
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    check_golden(root / "docs" / "schemas" / f"{command}.json", text)


@pytest.mark.parametrize("name", recording_names())
def test_reports_of_shipped_machines_keep_the_schema(name):
    """Every kind of machine, through every command."""
    topology = load_recording(name)
    check("show", report_show(topology))
    check("rank", report_rank(topology, 2, limit=3))
    check("value", report_value(topology, (0, topology.n_gpus - 1)))
    check("value-nodes", report_group([(topology, (0, topology.n_gpus - 1))] * 2))
    check("best", report_best(topology, BestQuery(2)))
    check("best", report_best(topology, BestQuery(2, free=(0,))))


@pytest.mark.parametrize("name", ["summit", "gb200-tray", "8x-mi300x"])
def test_report_of_gain_keeps_the_schema(name):
    """Sets that differ, sets that do not, and another vendor."""
    check("gain", report_gain(load_recording(name)))


def test_report_of_recordings_keeps_the_schema():
    """The list of names is read by programs, too."""
    check("recordings", report_recordings({"summit": load_recording("summit")}))


@given(topology=node_topologies(max_gpus=5), data=st.data())
@settings(max_examples=up_to(25))
def test_reports_of_any_machine_keep_the_schema(topology, data):
    """Recorded machines only show the usual corners of the model."""
    gpus = data.draw(st.sets(st.integers(0, topology.n_gpus - 1), min_size=1))
    check("show", report_show(topology))
    check("value", report_value(topology, gpus))
    check("best", report_best(topology, BestQuery(len(gpus))))
    check("rank", report_rank(topology, len(gpus)))


def test_a_value_is_the_one_that_places_pods():
    """`value` of the set that `best` chose says the same, and `rank` says it of its first."""
    topology = load_recording("dgx-1-v100")
    best = report_best(topology, BestQuery(3)).selected
    assert best is not None
    value = report_value(topology, best.gpus)
    first = report_rank(topology, 3, limit=1).sets[0]
    assert value.value_gbytes_per_s == best.value_gbytes_per_s == first.value_gbytes_per_s
    assert value.best_gpus == best.gpus
    assert value.loss == best.loss == 0


def test_an_empty_set_has_no_value(check_message):
    """There is nothing to request."""
    with pytest.raises(InvalidRequest) as caught:
        report_value(load_recording("summit"), ())
    check_message(caught.value)
