"""When the kubelet is read, what is published of it, and what is logged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from plugin.kubelet import AdmissionGate, KubeletRead, KubeletSnapshot
from plugin.kubelet.admission_gate import QUIET_S
from plugin.kubelet.pod_resources import PodDevices
from plugin.pods import MismatchKind
from plugin.publish import PlanMismatches, ReportLoop, ReportRejected
from tests.unit.plugin.node_states import snapshot, state
from tests.unit.plugin.node_values import app, holding, init, node_pod
from tests.virtual_time import run_at_once
from topology.annotations import (
    DevicesReport,
    MissingDevices,
    TopologyManagerPolicy,
    TopologyManagerScope,
    UnhealthyDevice,
)
from topology.errors import CodecError
from topology.topology_manager import TopologyManager

if TYPE_CHECKING:
    from plugin.allocation import NodeState

NO_DEVICES = KubeletSnapshot((), None, error="no PodResources")
SILENT = KubeletSnapshot(None, None, error="the kubelet is silent")
FREE = node_pod("free", app("main", 1))
HELD = snapshot(FREE, holdings=[holding(FREE, "main", "GPU-0", has_uid=False)])
PLANNED = node_pod("planned", app("main", 1), plan={"main": ("GPU-1",)})
BLIND = KubeletSnapshot(
    None,
    PodDevices(frozenset({("default", "free"), ("default", "planned")}), ()),
    (holding(FREE, "main", "GPU-0"), holding(PLANNED, "main", "GPU-1")),
    error="no /pods",
)
STAGES = node_pod("stages", init("i", 2), app("main", 1), plan={"main": ("GPU-2",)})
NONE = {kind.value: 0 for kind in MismatchKind}


@dataclass
class Node:
    """A kubelet that answers one look after another, the last one for ever; and the listeners."""

    snapshots: list[KubeletSnapshot]
    state: NodeState = field(default_factory=state)
    times_s: list[float] = field(default_factory=list)
    reports: list[DevicesReport] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    counts: list[dict[str, int]] = field(default_factory=list)
    gate: AdmissionGate = field(default_factory=AdmissionGate)
    keeps: list[bool] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    is_too_long: bool = False

    async def snapshot(self, *, with_devices=None, until_s=None):
        """The next look."""
        assert with_devices is until_s is None
        self.times_s.append(asyncio.get_running_loop().time() - 1000.0)
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]

    def emit(self, event):
        """Keep it, by kind."""
        match event:
            case KubeletRead():
                self.errors.append(event.error)
            case ReportRejected():
                self.refusals.append(event.reason)
            case PlanMismatches():
                self.differing += map(str, event.new)
                self.counts.append(dict(event.counts))

    def publish(self, report, *, keeps_holds):
        """Note it, or refuse it."""
        self.keeps.append(keeps_holds)
        if self.is_too_long:
            msg = "devices text is too long"
            raise CodecError(msg)
        self.reports.append(report)

    def reporting(self):
        """What is tried."""
        kubelet: Any = self
        return ReportLoop(self.state, kubelet, publish=self.publish, emit=self.emit)

    def run(self, until_s, *, events=()):
        """Run so long; at the times of `events` something happened."""

        async def go():
            reporting = self.reporting()
            loop = asyncio.get_running_loop()
            for at_s in events:
                loop.call_later(at_s, reporting.trigger)
            task = asyncio.create_task(reporting.run())
            await asyncio.sleep(until_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        run_at_once(go())
        return self


# --- When ------------------------------------------------------------------------------------


def test_the_first_look_is_at_once_the_second_when_the_kubelet_has_settled():
    """Then now and then: pods that end are no event here."""
    node = Node([snapshot()]).run(65.0)
    assert node.times_s == pytest.approx([0.0, 3.0, 33.0, 63.0])
    assert len(node.reports) == 4


def test_what_happens_together_is_one_look_and_one_more():
    """The containers of a pod come one after another, and their kubelet settles later."""
    node = Node([snapshot()]).run(50.0, events=[10.0, 10.1, 10.2])
    assert node.times_s == pytest.approx([0.0, 3.0, 10.3, 13.3, 43.3])


def test_an_event_before_the_second_look_puts_it_off():
    """Two looks follow the last event, none is for nothing."""
    node = Node([snapshot()]).run(30.0, events=[1.0, 2.0])
    assert node.times_s == pytest.approx([0.0, 1.3, 2.3, 5.3])


def test_a_kubelet_that_does_not_answer_is_read_again_soon():
    """And its second look is not lost over it."""
    node = Node([SILENT, SILENT, snapshot()]).run(40.0)
    assert node.times_s == pytest.approx([0.0, 5.0, 10.0, 13.0])
    assert node.errors == [SILENT.error, SILENT.error, "", ""]


def test_a_partial_answer_is_read_again_soon():
    """Without devices it is unknown which pod has what."""
    node = Node([KubeletSnapshot((), None, error="no PodResources"), snapshot()]).run(6.0)
    assert node.times_s == pytest.approx([0.0, 5.0])
    assert node.errors == ["no PodResources", ""]


def test_a_look_waits_while_the_kubelet_gives_devices_away():
    """And no longer than it must: a long burst is looked at without PodResources."""

    async def go():
        node = Node([snapshot()])
        reporting = node.reporting()
        async with node.gate.call():
            task = asyncio.create_task(reporting.run())
            await asyncio.sleep(1.0)
            assert node.times_s == []
        await asyncio.sleep(QUIET_S + 0.01)
        assert node.times_s == pytest.approx([1.0 + QUIET_S])
        async with node.gate.call():
            await asyncio.sleep(20.0)
            assert node.times_s[1] == pytest.approx(node.times_s[0] + 3.0 + 5.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_at_once(go())


# --- What ------------------------------------------------------------------------------------


def test_the_report_has_health_alignment_and_holds():
    """All that the plans do not hold."""
    node = Node([HELD])
    node.state.set_unhealthy({"GPU-3": "XID 79"})
    node.state.topology_manager = TopologyManager(
        TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.POD
    )
    (report,) = node.run(1.0).reports
    assert report.unhealthy == (UnhealthyDevice("GPU-3", "XID 79"),)
    assert (report.policy, report.scope) == (
        TopologyManagerPolicy.RESTRICTED,
        TopologyManagerScope.POD,
    )
    assert [(one.name, one.ids) for one in report.holds] == [("free", ("GPU-0",))]


def test_an_unknown_alignment_is_reported_as_unknown():
    """None is a policy of its own."""
    node = Node([snapshot()])
    node.state.topology_manager = None
    (report,) = node.run(1.0).reports
    assert (report.policy, report.scope) == (None, None)


def test_a_bad_gpu_is_reported_though_the_kubelet_is_silent():
    """And what was known of pods stays."""
    node = Node([SILENT])
    node.state.see(HELD)
    node.state.set_unhealthy({"GPU-3": "XID 79"})
    (report,) = node.run(1.0).reports
    assert [one.id for one in report.unhealthy] == ["GPU-3"]
    assert [one.ids for one in report.holds] == [("GPU-0",)]


def test_without_any_pod_list_health_is_reported():
    """At the start of a node."""
    (report,) = Node([SILENT]).run(1.0).reports
    none = TopologyManagerPolicy.NONE
    assert report == DevicesReport(policy=none, scope=TopologyManagerScope.CONTAINER)


def test_a_difference_is_logged_once_and_again_when_it_comes_back():
    """A line every 30 s for as long as a pod lives would be noise."""
    node = Node([HELD, HELD, snapshot(), HELD]).run(70.0)
    assert len(node.times_s) == 4
    assert len(node.differing) == 2
    assert set(node.differing) == {"pod default/free container main has GPU-0 without a plan"}
    assert node.counts == [NONE | {"no-plan": 1}, NONE | {"no-plan": 1}, NONE, node.counts[0]]


def test_a_pod_that_changes_otherwise_is_the_same_difference():
    """Its phase moves on while it has the devices."""
    running = replace(FREE, phase="Running", is_started=True)
    again = snapshot(running, holdings=[holding(FREE, "main", "GPU-0", has_uid=False)])
    assert len(Node([HELD, again]).run(5.0).differing) == 1


def test_the_kubelets_checkpoint_shows_what_init_containers_have():
    """Two GPUs outside the pod's plan: others must not be promised these."""
    seen = snapshot(STAGES, recorded=[holding(STAGES, "i", "GPU-0", "GPU-1")])
    (report,) = Node([seen]).run(1.0).reports
    assert [(one.container, one.ids) for one in report.holds] == [("i", ("GPU-0", "GPU-1"))]


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        pytest.param([SILENT], [True, True], id="no look yet"),
        pytest.param([NO_DEVICES], [True, True], id="pods alone"),
        pytest.param([HELD, NO_DEVICES], [False, True], id="devices no more"),
        pytest.param([NO_DEVICES, HELD], [True, False], id="devices at last"),
        pytest.param([HELD, SILENT], [False, True], id="silence after a whole look"),
        pytest.param([HELD, BLIND], [False, False], id="devices without pods"),
    ],
)
def test_unknown_holds_stay_published(snapshots, expected):
    """A report that empties them would free, for a moment, what others have."""
    assert Node(snapshots).run(5.5).keeps == expected


def test_without_the_kubelets_pods_all_that_is_held_is_reported():
    """The extender knows the plans: it compares, and counts what has none."""
    node = Node([BLIND]).run(1.0)
    (report,) = node.reports
    assert [(one.uid, one.name, one.ids) for one in report.holds] == [
        ("uid-free", "free", ("GPU-0",)),
        ("uid-planned", "planned", ("GPU-1",)),
    ]
    assert node.differing == [
        f"pod default/{name} container main has {id_}, and its plan cannot be read from the kubelet"
        for name, id_ in (("free", "GPU-0"), ("planned", "GPU-1"))
    ]
    assert node.counts == [NONE | {"unknown-plan": 2}]


def test_plans_that_were_read_before_count_without_the_kubelets_pods():
    """A pod that got its plan costs no write, then either."""
    node = Node([snapshot(PLANNED), BLIND]).run(4.0)
    assert [[one.name for one in report.holds] for report in node.reports] == [[], ["free"]]


RUNNING = replace(FREE, phase="Running", is_started=True)
BARE = MissingDevices("uid-free", "default", "free", "main", "nvidia.com/gpu")


def test_a_pod_without_its_devices_is_reported_for_as_long_as_it_runs():
    """The extender writes an Event; the plugin may write nothing on pods."""
    node = Node([snapshot(RUNNING), snapshot(RUNNING), snapshot()]).run(35.0)
    assert [report.missing for report in node.reports] == [(BARE,), (BARE,), ()]


def test_without_a_list_of_active_pods_it_is_reported_at_the_second_look():
    """What the first one finds may be a pod that has just ended."""
    ended = node_pod("ended", phase="Succeeded")
    node = Node([snapshot(RUNNING, ended)]).run(5.0)
    assert [report.missing for report in node.reports] == [(), (BARE,)]
    assert [len(counts) for counts in node.counts] == [len(NONE)] * 2


def test_a_look_without_devices_reports_no_pod_as_lacking_them():
    """Everybody would seem to be; what is published of them stays."""
    node = Node([KubeletSnapshot((RUNNING,), None, error="silent")]).run(1.0)
    assert ([report.missing for report in node.reports], node.keeps) == ([()], [True])


def test_without_devices_no_pod_is_reported_as_lacking_them():
    """The advice is to delete the pod."""
    running = replace(FREE, phase="Running", is_started=True)
    unknown = KubeletSnapshot((running,), None, error="silent")
    node = Node([unknown]).run(1.0)
    assert (node.differing, node.counts) == ([], [])
    describe_requirement = Node([snapshot(running)]).run(1.0)
    assert "runs without the nvidia.com/gpu" in describe_requirement.differing[0]


def test_a_pod_that_has_just_ended_does_not_run_without_devices():
    """Its phase is the API server's, and late; PodResources no longer lists it."""
    running = replace(FREE, phase="Running", is_started=True)
    assert Node([snapshot(running, listed=())]).run(5.0).differing == []


def test_without_a_list_of_active_pods_a_pod_without_devices_is_logged_at_the_second_look():
    """A kubelet that lists ended pods: one that ended would be logged."""
    running = replace(FREE, phase="Running", is_started=True)
    ended = node_pod("ended", phase="Succeeded")
    assert Node([snapshot(running, ended)]).run(1.0).differing == []
    assert len(Node([snapshot(running, ended)]).run(5.0).differing) == 1
    assert Node([snapshot(running, ended), snapshot(ended)]).run(5.0).differing == []


def test_a_report_too_large_for_a_node_is_logged():
    """The devices are served all the same."""
    node = Node([HELD], is_too_long=True).run(5.0)
    assert node.refusals == ["devices text is too long"] * 2
    assert len(node.differing) == 1
