"""Which pod a call of the kubelet is for: single cases, and a model of the kubelet's admission."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugin.allocation import (
    Ambiguous,
    DeviceRequest,
    Identified,
    Requester,
    UnknownRequester,
    identify,
)
from plugin.allocation.pod_matching import AdmissionView, reserved_for_others
from plugin.pods import HeldDevices, NodePod, PodContainer
from tests.device_manager import NotAdmitted
from tests.examples import up_to
from tests.unit.plugin.admission_model import Kubelet
from tests.unit.plugin.node_values import (
    APP,
    GPU,
    INIT,
    MIG,
    NODE,
    SIDECAR,
    app,
    holding,
    init,
    node_pod,
    sidecar,
)

OURS = frozenset({GPU, MIG})


def letters(text: str) -> frozenset[str]:
    """Device ids of one letter each."""
    return frozenset(text)


def view(*pods, **known) -> AdmissionView:
    """What is known, by a fresh list unless the test says otherwise."""
    return AdmissionView(NODE, OURS, pods, **{"is_fresh": True, **known})


def request(
    available: str, size: int, must_include: str = "", resource: str = GPU
) -> DeviceRequest:
    """A question of the kubelet."""
    return DeviceRequest(resource, letters(available), letters(must_include), size)


def requester(identity: Requester) -> object:
    """Pod and container, or the pods it may be, or None."""
    if isinstance(identity, Identified):
        return identity.pod.name, identity.container.name
    if isinstance(identity, Ambiguous):
        return [one.pod.name for one in identity.candidates]
    return None


# --- Single cases ----------------------------------------------------------------------------

PAIR = node_pod("pair", app("main", 2), plan={"main": "ab"})
QUAD = node_pod("quad", app("main", 4), plan={"main": "efgh"})
TWIN = node_pod("twin", app("main", 2), plan={"main": "cd"})
STAGES = node_pod("stages", init("prepare", 2), sidecar("log", 1), app("train", 4), app("view", 1))
FOREIGN = node_pod("foreign", PodContainer("first", APP, {"x/nic": 1}), app("main", 2))
STARTED = node_pod("started", app("main", 2), is_started=True, phase="Running")


@pytest.mark.parametrize(
    ("pods", "wanted", "known", "expected"),
    [
        pytest.param([PAIR, QUAD], request("abcdefgh", 4), {}, ("quad", "main"), id="size"),
        pytest.param([PAIR], request("abcd", 3), {}, None, id="no such size"),
        pytest.param([PAIR], request("abcd", 2, resource=MIG), {}, None, id="other resource"),
        pytest.param([PAIR, TWIN], request("abcd", 2), {}, ["pair", "twin"], id="alike"),
        pytest.param(
            [PAIR, TWIN],
            request("cdef", 2),
            {},
            ["twin", "pair"],
            id="whose plan is free comes first",
        ),
        pytest.param(
            [PAIR, TWIN],
            request("abcd", 2),
            {"active": frozenset({("default", "twin")})},
            ("twin", "main"),
            id="a rejected pod is not active",
        ),
        pytest.param(
            [PAIR, TWIN],
            request("abcd", 2),
            {"refused": frozenset({"uid-pair"})},
            ("twin", "main"),
            id="refused by us",
        ),
        pytest.param(
            [PAIR, TWIN],
            request("cdef", 2),
            {"holdings": (holding(PAIR, "main", "a", "b"),)},
            ("twin", "main"),
            id="has devices",
        ),
        pytest.param(
            [PAIR, TWIN],
            request("cdef", 2),
            {"holdings": (holding(PAIR, "main", "a", "b", has_uid=False),)},
            ("twin", "main"),
            id="has devices, by name",
        ),
        pytest.param(
            [replace(PAIR, phase="Failed"), TWIN],
            request("abcd", 2),
            {},
            ("twin", "main"),
            id="has failed",
        ),
        pytest.param(
            [replace(PAIR, phase="Succeeded")], request("abcd", 2), {}, None, id="has succeeded"
        ),
        pytest.param(
            [STARTED, PAIR],
            request("abcd", 2),
            {"active": frozenset({("default", "started"), ("default", "pair")})},
            ("pair", "main"),
            id="a running pod without devices stands back",
        ),
        pytest.param(
            [STARTED, PAIR],
            request("abcd", 2),
            {},
            ["pair", "started"],
            id="unless the other may be a rejected one",
        ),
        pytest.param(
            [STARTED], request("abcd", 2), {}, ("started", "main"), id="a running pod again"
        ),
        pytest.param(
            [STARTED],
            request("abcd", 2),
            {"refused": frozenset({"uid-started"})},
            ("started", "main"),
            id="a running pod tries again when refused",
        ),
        pytest.param(
            [PAIR, TWIN],
            request("abcd", 2),
            {
                "preexisting": frozenset({"uid-pair"}),
                "active": frozenset({("default", "twin"), ("default", "pair")}),
            },
            ("twin", "main"),
            id="listed before the resource was known",
        ),
        pytest.param(
            [replace(PAIR, is_deleting=True)],
            request("abcd", 2),
            {},
            ("pair", "main"),
            id="a pod that is being deleted may still be admitted",
        ),
        pytest.param(
            [STAGES], request("abcdefgh", 2), {}, ("stages", "prepare"), id="first container"
        ),
        pytest.param(
            [FOREIGN],
            request("abcdefgh", 2),
            {},
            ("foreign", "main"),
            id="others' devices do not count",
        ),
        pytest.param(
            [STAGES],
            request("abcdefgh", 4, "b"),
            {"grants": (holding(STAGES, "prepare", "a", "b"), holding(STAGES, "log", "a"))},
            None,
            id="its own devices would not be available",
        ),
        pytest.param(
            [STAGES],
            request("bcdefgh", 4, "b"),
            {"grants": (holding(STAGES, "prepare", "a", "b"), holding(STAGES, "log", "a"))},
            ("stages", "train"),
            id="the rest of what was handed on must be included",
        ),
        pytest.param(
            [STAGES],
            request("bcdefgh", 4),
            {"grants": (holding(STAGES, "prepare", "a", "b"), holding(STAGES, "log", "a"))},
            None,
            id="devices that are reused need no call",
        ),
        pytest.param(
            [STAGES],
            request("cdefgh", 4, "cd"),
            {"grants": (holding(STAGES, "prepare", "a", "b"), holding(STAGES, "log", "a"))},
            None,
            id="others must be included",
        ),
        pytest.param(
            [STAGES],
            request("bcdefgh", 4, "bc"),
            {
                "grants": (holding(STAGES, "prepare", "a", "b"), holding(STAGES, "log", "a")),
                "kubelet_decides": True,
            },
            ("stages", "train"),
            id="aligned devices beside those handed on",
        ),
        pytest.param(
            [STAGES],
            request("b", 1, "b"),
            {"holdings": (holding(STAGES, "train", "b", "c", "d", "e"),)},
            None,
            id="an allocation of what another container has",
        ),
    ],
)
def test_the_pod_of_a_call(pods, wanted, known, expected):
    """Each fact that distinguishes pods does so alone."""
    assert requester(identify(wanted, view(*pods, **known))) == expected


def test_the_plan_comes_with_the_container():
    """Who is known brings along what was planned for it on this node, if anything."""
    found = identify(request("abcd", 2), view(PAIR))
    assert isinstance(found, Identified)
    assert found.planned == ("a", "b")
    elsewhere = node_pod("pair", app("main", 2), plan={"main": "ab"}, node="n2")
    found = identify(request("abcd", 2), view(elsewhere))
    assert isinstance(found, Identified)
    assert found.planned == ()


def test_an_allocation_without_a_question_is_put_down_to_whom_the_devices_were_handed():
    """The kubelet gives what init containers left without a call; the state still has to know."""
    pod = node_pod("p", init("first", 3), app("main", 2))
    known = {"grants": (holding(pod, "first", *"abc"),)}
    assert requester(identify(DeviceRequest.fixed(GPU, "ac"), view(pod, **known))) == ("p", "main")
    assert requester(identify(DeviceRequest.fixed(GPU, "ad"), view(pod, **known))) is None
    assert requester(
        identify(DeviceRequest.fixed(GPU, "ac"), view(pod, **known, is_fresh=False))
    ) == ("p", "main")


def test_an_older_list_proves_nothing_about_a_first_container():
    """A pod that came since could request as many; only a fresh list shows it."""
    assert isinstance(identify(request("abcd", 2), view(PAIR, is_fresh=False)), UnknownRequester)


GOING_ON = node_pod("on", app("one", 2), app("two", 2), plan={"one": "ab", "two": "cd"})
HANDING_ON = node_pod("on", init("one", 2), app("two", 3))


@pytest.mark.parametrize(
    ("pod", "wanted", "known", "expected"),
    [
        pytest.param(GOING_ON, request("cdef", 2), {}, ("on", "two"), id="its device is missing"),
        pytest.param(GOING_ON, request("acdef", 2), {}, None, id="a device of it is free"),
        pytest.param(GOING_ON, request("cdef", 3), {}, None, id="another number"),
        pytest.param(
            GOING_ON,
            request("cdef", 2),
            {"always_healthy": letters("cdef")},
            None,
            id="missing may mean unwell",
        ),
        pytest.param(
            GOING_ON,
            request("cdef", 2),
            {"kubelet_decides": True},
            None,
            id="not all that is free shows",
        ),
        pytest.param(GOING_ON, request("cdef", 2), {"grants": ()}, None, id="nothing given yet"),
        pytest.param(
            GOING_ON,
            request("cdef", 2),
            {"refused": frozenset({"uid-on"})},
            None,
            id="refused since",
        ),
        pytest.param(
            replace(GOING_ON, is_started=True),
            request("cdef", 2),
            {},
            None,
            id="it was no admission",
        ),
        pytest.param(
            HANDING_ON,
            request("abcd", 3, "ab"),
            {},
            ("on", "two"),
            id="its devices must be included",
        ),
        pytest.param(HANDING_ON, request("abcd", 3), {}, None, id="they need not"),
    ],
)
def test_an_admission_that_goes_on_needs_no_list(pod, wanted, known, expected):
    """Containers of one pod follow each other: the second one costs no reading of the list."""
    grants = (holding(PAIR, "main", "x"), holding(pod, "one", "a", "b"))
    known = {"grants": grants, "always_healthy": letters("abcdefgh"), **known}
    assert requester(identify(wanted, view(pod, PAIR, is_fresh=False, **known))) == expected


def test_a_running_pod_that_lacks_as_many_disturbs_an_admission_that_goes_on():
    """Its container may start again at any moment, between two containers of another pod."""
    known = {"grants": (holding(GOING_ON, "one", "a", "b"),), "always_healthy": letters("abcd")}
    assert (
        requester(identify(request("cd", 2), view(GOING_ON, is_fresh=False, **known))) is not None
    )
    assert (
        requester(identify(request("cd", 2), view(GOING_ON, STARTED, is_fresh=False, **known)))
        is None
    )


def test_devices_of_unknown_pods_make_a_single_candidate_uncertain():
    """The asker may be further on than it seems, so that it is not among the candidates."""
    stray = HeldDevices("", "", "", GPU, ("x", "y"))
    pod = node_pod("p", init("first", 2), app("main", 3))
    known = {"grants": (stray,)}
    assert requester(identify(request("abcd", 2), view(PAIR, **known))) == ["pair"]
    assert requester(identify(request("xyab", 2), view(PAIR, **known))) == ("pair", "main")
    active = {**known, "active": frozenset({("default", "p")})}
    assert requester(identify(request("xyab", 3, "xy"), view(pod, **active))) == ("p", "main")
    assert requester(identify(request("xyab", 4, "xy"), view(pod, **active))) is None
    assert requester(identify(request("xyab", 3, "xy"), view(pod, PAIR, **known))) is None
    aligned = node_pod("p", init("first", 2), app("main", 2), app("more", 2))
    alone = {**active, "kubelet_decides": True}
    assert requester(identify(request("xabc", 3, "xa"), view(pod, **alone))) == ("p", "main")
    assert requester(identify(request("xabc", 2, "xa"), view(aligned, **alone))) == ["p", "p", "p"]
    assert requester(identify(request("xabc", 4, "xa"), view(aligned, **alone))) is None
    assert requester(identify(request("abcd", 2, "a"), view(aligned, **alone))) == ["p", "p", "p"]
    named = {**alone, "holdings": (holding(PAIR, "main", "x", "y"),)}
    assert requester(identify(request("abcd", 2, "a"), view(aligned, **named))) == ("p", "first")
    late = {**known, "active": frozenset({("default", "started")})}
    assert requester(identify(request("abcd", 2), view(STARTED, **late))) == ["started"]


def test_what_others_wait_for_is_reserved():
    """Not what the asker itself is to get, what pods have got, or what ended pods were to get."""
    own = node_pod("asker", app("one", 1), app("two", 1), plan={"one": "x", "two": "y"})
    over = node_pod("over", app("main", 1), plan={"main": "z"}, phase="Failed")
    known = view(own, PAIR, QUAD, over, grants=(holding(QUAD, "main", *"efgh"),))
    identity = identify(request("xyabc", 1), known)
    assert requester(identity) == ("asker", "one")
    assert reserved_for_others(identity, known) == letters("yab")
    assert reserved_for_others(UnknownRequester("a test"), known) == letters("xyab")


def test_an_init_container_may_have_what_its_own_pod_gets_later():
    """It hands its devices on, so that they are best taken from there."""
    pod = node_pod("p", init("first", 1), app("main", 1), plan={"first": "b", "main": "b"})
    known = view(pod, TWIN)
    assert reserved_for_others(identify(request("abcd", 1), known), known) == letters("cd")


# --- A model of the kubelet ------------------------------------------------------------------


@dataclass
class Prober:
    """A plugin that calls `identify` as the real one does, and compares with the kubelet."""

    kubelet: Kubelet
    knows_active: bool
    reads_checkpoint: bool
    pods: tuple[NodePod, ...] = ()
    grants: list[HeldDevices] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    preexisting: frozenset[str] = frozenset()
    always_healthy: set[str] = field(default_factory=set)
    refuses: bool = False
    answered: tuple[frozenset[str], Requester] | None = None
    seen: list[str] = field(default_factory=list)

    def prefer(self, request: DeviceRequest):
        """GetPreferredAllocation."""
        identity = self.find(request)
        if self.refuses:
            if isinstance(identity, Identified):
                self.refused.add(identity.pod.uid)
            msg = "no such set"
            raise NotAdmitted(msg)
        free = sorted(request.available - request.must_include)
        more = self.kubelet.chance.sample(free, request.size - len(request.must_include))
        answer = request.must_include | frozenset(more)
        self.answered = (answer, identity)
        return answer

    def allocate(self, resource: str, ids: list[str]) -> None:
        """Allocate."""
        answered, self.answered = self.answered, None
        if answered is not None and answered[0] == frozenset(ids):
            identity = answered[1]
        else:
            identity = self.find(DeviceRequest.fixed(resource, ids))
        uid, container = None, ""
        if isinstance(identity, Identified):
            uid, container = identity.pod.uid, identity.container.name
        self.grants.append(HeldDevices("", "", container, resource, tuple(ids), uid))

    def find(self, wanted: DeviceRequest) -> Requester:
        """First what is known, then a fresh list, then PodResources."""
        identity = self.snapshot(wanted, "cache", is_fresh=False)
        if isinstance(identity, Identified):
            return identity
        self.pods = self.kubelet.list_pods()
        identity = self.snapshot(wanted, "list")
        if isinstance(identity, Identified):
            return identity
        if self.knows_active:
            identity = self.snapshot(
                wanted,
                "active",
                active=self.kubelet.active_pods(),
                holdings=self.kubelet.pod_resources() + self.checkpoint(),
            )
            uid = self.kubelet.under_admission[0]
            is_admission = uid not in self.preexisting and not self.kubelet.pods[uid].is_started
            if is_admission and all(one.uid is not None for one in self.grants):
                assert isinstance(identity, Identified), "a pod under admission is always known"
        return identity

    def checkpoint(self) -> tuple[HeldDevices, ...]:
        """What the kubelet wrote down, if we read it."""
        return self.kubelet.checkpoint() if self.reads_checkpoint else ()

    def snapshot(self, wanted: DeviceRequest, stage: str, **known) -> Requester:
        """One stage; whatever it is sure of must be so."""
        known = {"is_fresh": True, "holdings": self.checkpoint(), **known}
        identity = identify(
            wanted,
            AdmissionView(
                NODE,
                OURS,
                self.pods,
                grants=tuple(self.grants),
                refused=frozenset(self.refused),
                preexisting=self.preexisting,
                kubelet_decides=self.kubelet.aligns,
                always_healthy=frozenset(self.always_healthy),
                **known,
            ),
        )
        if isinstance(identity, Identified):
            assert (identity.pod.uid, identity.container.name) == self.kubelet.under_admission, (
                stage
            )
            self.seen.append(stage)
        elif isinstance(identity, Ambiguous) and not any(g.uid is None for g in self.grants):
            assert self.kubelet.under_admission[0] in {one.pod.uid for one in identity.candidates}
        return identity

    def register(self) -> None:
        """Come (again): what was known is forgotten, and the kubelet's list is settled."""
        self.pods, self.grants, self.refused = (), [], set()
        self.preexisting = frozenset(self.kubelet.pods)
        self.always_healthy = set().union(*self.kubelet.healthy.values())
        self.kubelet.is_registered = True


roles = st.sampled_from([INIT, SIDECAR])
counts = st.sampled_from([0, 1, 1, 2, 2, 3])


@st.composite
def pod_shapes(draw):
    """Containers of a pod: init containers and sidecars in any order, then apps."""
    kinds = draw(st.lists(roles, max_size=3)) + [APP] * draw(st.integers(1, 2))
    shapes = []
    for i, role in enumerate(kinds):
        wanted = {GPU: draw(counts), MIG: draw(st.sampled_from([0, 0, 0, 1, 2]))}
        shapes.append(PodContainer(f"c{i}", role, {one: n for one, n in wanted.items() if n}))
    return tuple(shapes)


STEPS = st.one_of(
    st.tuples(st.just("admit"), pod_shapes(), st.sampled_from(["", "", "", "c1", "c2", "end"])),
    st.tuples(st.just("admit"), pod_shapes(), st.just("")),
    st.tuples(st.just("refuse"), pod_shapes(), st.just("")),
    st.tuples(st.sampled_from(["sync", "sync all", "end", "remove", "restart"])),
    st.tuples(st.sampled_from(["list", "unwell", "well", "register", "unregister"])),
)


@settings(max_examples=up_to(200), suppress_health_check=[HealthCheck.too_slow])
@given(
    chance=st.randoms(use_true_random=False),
    aligns=st.booleans(),
    knows_active=st.booleans(),
    reads_checkpoint=st.booleans(),
    steps=st.lists(STEPS, max_size=40),
)
def test_no_pod_is_ever_taken_for_another(chance, aligns, knows_active, reads_checkpoint, steps):
    """Bursts, rejections, restarts, pods without devices, stale statuses: never a wrong name."""
    run_steps(chance, aligns, knows_active, reads_checkpoint, steps)


def run_steps(chance, aligns, knows_active, reads_checkpoint, steps) -> Prober:
    """Play the steps on a kubelet of eight GPUs and six MIG instances."""
    healthy = {GPU: set("abcdefgh"), MIG: set("uvwxyz")}
    kubelet = Kubelet(chance, healthy, aligns=aligns)
    prober = Prober(kubelet, knows_active, reads_checkpoint)
    kubelet.plugin = prober
    kubelet.is_registered = False
    for number, (what, *how) in enumerate(steps):
        uids = sorted(kubelet.pods)
        some = chance.choice(uids) if uids else None
        if what in {"admit", "refuse"}:
            free_names = {f"p{i}" for i in range(50)} - {pod.name for pod in kubelet.pods.values()}
            pod = replace(node_pod(min(free_names), *how[0]), uid=f"u{number}")
            prober.refuses = what == "refuse"
            kubelet.admit(pod, fails_at=how[1] or None)
        elif what == "list":
            prober.pods = kubelet.list_pods()
        elif what in {"unwell", "well"}:
            one = chance.choice("abcdefgh")
            (healthy[GPU].discard if what == "unwell" else healthy[GPU].add)(one)
            prober.always_healthy.discard(one)
        elif what == "register":
            prober.register()
        elif what == "unregister":
            kubelet.is_registered = bool(prober.preexisting or prober.grants)
        elif what == "sync all":
            for uid in uids:
                kubelet.sync(uid)
        elif some is not None:
            change(kubelet, what, some)
    return prober


def change(kubelet: Kubelet, what: str, uid: str) -> None:
    """Something happens to one pod."""
    if what == "sync":
        kubelet.sync(uid)
    elif what == "end":
        kubelet.end(uid)
    elif what == "remove":
        kubelet.remove(uid)
    elif uid not in kubelet.inactive:
        kubelet.sync(uid)
        for container in kubelet.pods[uid].containers:
            kubelet.start_again(uid, container)
