"""Each event's name and form in the decision log, both ways, in one table.

`_FORMS` has an entry for each class of `extender.engine.events`: the kind and name of its lines and
the members that say what came in. What an event leads to has one form for each kind of line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from extender.bind import BindCall, HoldBind, ReadPod, WriteBinding, WriteResult, Written
from extender.decision_log.format import CallLine, FeedLine, RequeueLine, StepLine, to_text
from extender.engine import events
from extender.errors import DecisionLogError
from extender.preemption import NodeReading, NodesRead, ReadNodes
from extender.protocol import Answer
from kube.documents import first_fault
from kube.objects import DisruptionBudget, NodeFacts, PodFacts, PodObject
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.engine.events import Output

__all__ = [
    "EventLine",
    "Json",
    "PendingStep",
    "line_of",
    "output_of",
    "read_event",
    "recorded_output",
    "step_id",
]

Json: TypeAlias = "dict[str, Any]"
"""The members of a JSON object."""
EventLine: TypeAlias = CallLine | FeedLine | StepLine | RequeueLine
PendingStep: TypeAlias = ReadPod | WriteBinding | HoldBind | ReadNodes
"""A step that an event ends, or starts."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How one class of events stands in the log.

    `write` gives what came in as members of a line. `read` is given the line, and the step that the
    event ends; `step` is that step's type, None for an event that ends none.
    """

    kind: str
    name: str
    write: Callable[[Any], Json]
    read: Callable[[Any, Any], events.Event]
    step: type | tuple[type, ...] | None = None


def _adapter(value: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type of any kind
    adapter: TypeAdapter[Any] = TypeAdapter(value)
    # What the modules of these values import for type checkers only.
    adapter.rebuild(
        _types_namespace={
            "DisruptionBudget": DisruptionBudget,
            "Mapping": Mapping,
            "NodeFacts": NodeFacts,
            "NodeReading": NodeReading,
            "PodFacts": PodFacts,
            "PodObject": PodObject,
        }
    )
    return adapter


def _validate(name: str, adapter: TypeAdapter[Any], content: object) -> Any:  # noqa: ANN401 - as it
    # Through text: strict JSON takes a list for a tuple, strict Python does not.
    try:
        return adapter.validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        msg = f"input of {name}: {first_fault(error, whole='value')}"
        raise DecisionLogError(msg) from error


def _feed(name: str, event: Any) -> _Form:  # noqa: ANN401 - a class of events
    """A line of the feed: its input is the event's only field, or the event as a whole."""
    adapter, (first, *more) = _adapter(event), [field.name for field in fields(event)]

    def write(one: Any) -> Json:  # noqa: ANN401 - as in the table
        content = adapter.dump_python(one, mode="json")
        return {"input": content if more else content[first]}

    def read(line: Any, _: object) -> Any:  # noqa: ANN401 - as in the table
        return _validate(name, adapter, line.input if more else {first: line.input})

    return _Form("feed", name, write, read)


def _step(
    name: str,
    write: Callable[[Any], Json],
    read: Callable[[Any, Any], events.Event],
    step: type | tuple[type, ...] | None = None,
) -> _Form:
    """A line of a bind or a preemption, with its time and the step that it ends."""

    def write_all(event: Any) -> Json:  # noqa: ANN401 - as in the table
        ended = {} if step is None else {"step_id": step_id(event.step)}
        return {"at_s": event.at_s, **ended, **write(event)}

    return _Form("step", name, write_all, read, step)


def _written(line: StepLine) -> Written:
    return Written(line.result or WriteResult.UNKNOWN, line.detail)


_NODES_READ = _adapter(NodesRead)
_BIND_STEP = ReadPod, WriteBinding, HoldBind

_FORMS: Mapping[type[events.Event], _Form] = {
    events.VerbCalled: _Form(
        "call",
        "",
        lambda event: {
            "verb": event.verb.value,
            "at_s": event.at_s,
            **to_text(event.body),
            **({} if event.n_rated is None else {"n_rated": event.n_rated}),
        },
        lambda line, _: events.VerbCalled(line.verb, line.body, line.at_s, line.n_rated),
    ),
    events.RequeueDue: _Form(
        "wakes",
        "",
        lambda event: {"at_s": event.at_s},
        lambda line, _: events.RequeueDue(line.at_s),
    ),
    events.NodeSeen: _feed("see_node", events.NodeSeen),
    events.NodeGone: _feed("lose_node", events.NodeGone),
    events.NodesListed: _feed("replace_nodes", events.NodesListed),
    events.PodSeen: _feed("see_pod", events.PodSeen),
    events.PodGone: _feed("lose_pod", events.PodGone),
    events.PodsListed: _feed("replace_pods", events.PodsListed),
    events.PodFetched: _feed("see_foreign", events.PodFetched),
    events.NominationSeen: _feed("see_nominated", events.NominationSeen),
    events.NominationGone: _feed("lose_nominated", events.NominationGone),
    events.NominationsListed: _feed("replace_nominated", events.NominationsListed),
    events.PendingSeen: _feed("see_pending", events.PendingSeen),
    events.PendingGone: _feed("lose_pending", events.PendingGone),
    events.PendingListed: _feed("replace_pending", events.PendingListed),
    events.FreshnessSet: _feed("set_freshness", events.FreshnessSet),
    events.TimePassed: _feed("expire", events.TimePassed),
    events.RequeueDropped: _feed("sleep_on", events.RequeueDropped),
    events.RatingsResumed: _feed("rate_deferred", events.RatingsResumed),
    events.BindRequested: _step(
        "begin_bind",
        lambda event: to_text(event.call.body),
        lambda line, _: events.BindRequested(BindCall.decode(line.body), line.at_s),
    ),
    events.BindHeld: _step(
        "held",
        lambda _: {},
        lambda line, step: events.BindHeld(step, line.at_s),
        HoldBind,
    ),
    events.BindPodRead: _step(
        "pod_read",
        lambda event: {} if event.pod is None else to_text(event.pod),
        lambda line, step: events.BindPodRead(step, line.body_or_none, line.at_s),
        ReadPod,
    ),
    events.BindingWritten: _step(
        "binding_written",
        lambda event: {"result": event.written.result.value, "detail": event.written.detail},
        lambda line, step: events.BindingWritten(step, _written(line), line.at_s),
        WriteBinding,
    ),
    events.BindAbandoned: _step(
        "abandon",
        lambda event: {"detail": event.detail},
        lambda line, step: events.BindAbandoned(step, line.detail, line.at_s),
        _BIND_STEP,
    ),
    events.PreemptRequested: _step(
        "begin_preempt",
        lambda event: to_text(event.body),
        lambda line, _: events.PreemptRequested(line.body, line.at_s),
    ),
    events.PreemptNodesRead: _step(
        "nodes_read",
        lambda event: {"read": _NODES_READ.dump_python(event.read, mode="json")},
        lambda line, step: events.PreemptNodesRead(
            step, _validate("nodes_read", _NODES_READ, line.read), line.at_s
        ),
        ReadNodes,
    ),
    events.PreemptAbandoned: _step(
        "abandon_preempt",
        lambda event: {"detail": event.detail},
        lambda line, step: events.PreemptAbandoned(step, line.detail, line.at_s),
        ReadNodes,
    ),
}
_BY_NAME = {(form.kind, form.name): form for form in _FORMS.values()}


def line_of(event: events.Event, output: Output) -> Json:
    """The line of an event and what it led to."""
    form = _FORMS[type(event)]
    line: Json = {"kind": form.kind}
    if form.name:
        line["what"] = form.name
    line |= form.write(event)
    led_to = output_of(event, output)
    return line | ({"output": led_to} if form.kind == "step" else led_to)


def read_event(line: EventLine, steps: dict[str, PendingStep]) -> events.Event:
    """The event of a line; a step that it ends is taken from `steps`.

    Raises `DecisionLogError`.
    """
    what = line.what if isinstance(line, FeedLine | StepLine) else ""
    form = _BY_NAME.get((line.kind, what))
    if form is None:
        names = sorted(name for kind, name in _BY_NAME if kind == line.kind)
        msg = f"what is {quote(what)}, expected one of: {', '.join(names)}"
        raise DecisionLogError(msg)
    if form.step is None or not isinstance(line, StepLine):
        return form.read(line, None)
    step = steps.pop(line.step_id, None)
    if not isinstance(step, form.step):
        msg = f"{what} of {quote(line.step_id)}, expected such a step"
        raise DecisionLogError(msg)
    return form.read(line, step)


def output_of(event: events.Event, output: Output) -> Json:
    """What an event led to, as members of its line or of the line's `output`."""
    if isinstance(output, Answer) and isinstance(event, events.VerbCalled):
        return {
            "outcome": output.outcome.value,
            "generation": output.generation,
            "answer": output.body.decode(),
        }
    if isinstance(output, Answer):
        return {
            "end": output.outcome.value,
            "reason": output.reason.label if output.reason else "",
            "generation": output.generation,
            "answer": output.body.decode(),
        }
    if isinstance(output, tuple):
        return {"uids": [one.uid for one in output]}
    return {} if output is None else _next_step(output)


def recorded_output(line: CallLine | StepLine | RequeueLine) -> Json:
    """The same as it was recorded."""
    match line:
        case CallLine():
            return line.model_dump(include={"outcome", "generation", "answer"})
        case StepLine():
            return line.output
        case RequeueLine():
            return {"uids": line.uids}


def step_id(step: PendingStep) -> str:
    """What a step is called in the log: which verb's, and its number in this run."""
    if isinstance(step, ReadNodes):
        return f"preempt-{step.preempt_id}"
    if isinstance(step, HoldBind):
        return f"hold-{step.bind_id}"
    return f"bind-{step.bind_id}"


def _next_step(step: PendingStep) -> Json:
    members: Json = {"step_id": step_id(step)}
    if isinstance(step, ReadNodes):
        return {"next": "read_nodes"} | members | {"names": list(step.names)}
    members |= {"uid": step.uid, "node": step.node}
    if isinstance(step, HoldBind):
        return {"next": "hold"} | members
    if not isinstance(step, WriteBinding):
        return {"next": "read"} | members
    members |= {"resource_version": step.resource_version, "annotations": dict(step.annotations)}
    if step.planned_from is not None:
        members["generation"] = step.planned_from.generation
        members["free"] = list(step.planned_from.free)
    return {"next": "write"} | members
