"""Tests of `plugin.allocation.preferred_allocation` and `plugin.allocation.best_set`."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.allocation import (
    Allocation,
    AllocationRefusal,
    Ambiguous,
    DeviceRequest,
    Identified,
    Requester,
    UnknownRequester,
    choose_devices,
)
from plugin.allocation.best_set import requires, serves
from plugin.allocation.preferred_allocation import AllocationBasis, RefusalReason, Supply
from plugin.machine import SharedPolicy
from tests.examples import up_to
from tests.machines import NVLINK, machine
from tests.strategies import node_topologies
from tests.unit.plugin.node_values import GPU, app, gpus, instances, node_pod, replicas
from topology.annotations import Affinity, parse_policy
from topology.model import Gpu, NodeTopology, PcieLevel
from topology.recordings import load_recording
from topology.select import Selected, build_machine, select_set

PLANNED, SWAPPED, SUBSTITUTE, BEST, HARMLESS = AllocationBasis
UNKNOWN_POD = UnknownRequester("a test")
AFFINITY, POLICY = "coterie.gpu/affinity", "coterie.gpu/policy"
REQUIRED = {AFFINITY: "nvlink", POLICY: "required"}


def named(topology: NodeTopology) -> NodeTopology:
    """The same with a uuid for each GPU, a, b, c ..."""
    return replace(
        topology, gpus=tuple(replace(gpu, uuid=chr(97 + i)) for i, gpu in enumerate(topology.gpus))
    )


PAIRS = machine(
    [Gpu(uuid=one, model="H100", numa_node=i // 4) for i, one in enumerate("abcdefgh")],
    links={(i, i + 1): NVLINK(12) for i in (0, 2, 4, 6)},
    levels={**{(i, i + 1): PcieLevel.NODE for i in (0, 2, 4, 6)}, "else": PcieLevel.SYS},
)
"""Four NVLink pairs: ab, cd, ef, gh."""
SUPPLY = Supply(gpus(*"abcdefgh"), build_machine(PAIRS))


def request(available: str, size: int, must: str = "") -> DeviceRequest:
    """A question of the kubelet."""
    return DeviceRequest(GPU, frozenset(available), frozenset(must), size)


def own(planned: str = "", annotations: dict[str, str] | None = None) -> Identified:
    """A pod that is known, with its plan."""
    container = app("main", 2)
    pod = node_pod("p", container, annotations=annotations or {})
    return Identified(pod, container, tuple(planned))


def got(answer: Allocation | AllocationRefusal) -> object:
    """Ids and why, or the reason of a refusal."""
    if isinstance(answer, AllocationRefusal):
        return answer.reason
    return "".join(answer.ids), answer.basis


def choice(wanted: DeviceRequest, requester: Requester, supply: Supply) -> Allocation:
    """The answer, where there is one."""
    answer = choose_devices(wanted, requester, supply)
    assert isinstance(answer, Allocation)
    return answer


def refusal(wanted: DeviceRequest, requester: Requester, supply: Supply) -> AllocationRefusal:
    """The refusal, where there is one."""
    answer = choose_devices(wanted, requester, supply)
    assert isinstance(answer, AllocationRefusal)
    return answer


@pytest.mark.parametrize(
    ("wanted", "requester", "expected"),
    [
        pytest.param(request("abcdefgh", 2), own("fc"), ("cf", PLANNED), id="plan"),
        pytest.param(request("abcdefgh", 2, "c"), own("cf"), ("cf", PLANNED), id="plan holds it"),
        pytest.param(request("abdefgh", 2), own("cd"), ("ab", SUBSTITUTE), id="a device is taken"),
        pytest.param(
            request("abcdefgh", 2, "e"), own("cd"), ("ef", SUBSTITUTE), id="another must be"
        ),
        pytest.param(
            request("abcdefgh", 2), own("cde"), ("ab", SUBSTITUTE), id="plan of another size"
        ),
        pytest.param(request("bcd", 2), own(), ("cd", BEST), id="no plan: the best"),
        pytest.param(
            request("abce", 2), UNKNOWN_POD, ("ce", HARMLESS), id="an unknown pod: pairs stay whole"
        ),
        pytest.param(request("bcd", 1), own(), ("b", BEST), id="one GPU: pairs stay whole"),
        pytest.param(
            request("ace", 2), own("", REQUIRED), RefusalReason.REQUIRED, id="required: no such set"
        ),
        pytest.param(
            request("aceghd", 2), own("ab", REQUIRED), ("cd", SUBSTITUTE), id="required: another"
        ),
        pytest.param(
            request("abceg", 2), own("ac", REQUIRED), ("ab", SUBSTITUTE), id="plan without link"
        ),
        pytest.param(request("a", 1), own("", REQUIRED), ("a", BEST), id="one always satisfies"),
        pytest.param(request("ab", 3), own(), RefusalReason.TOO_FEW, id="too few"),
        pytest.param(request("abX", 3), own(), RefusalReason.TOO_FEW, id="an unknown device"),
        pytest.param(
            request("abX", 1, "X"), own(), RefusalReason.MUST_INCLUDE, id="and it must be included"
        ),
        pytest.param(request("abc", 1, "ab"), own(), RefusalReason.MUST_INCLUDE, id="two of one"),
    ],
)
def test_rules(wanted, requester, expected):
    """Plan, else the pod's policy, else the least harm; what is required or nothing."""
    assert got(choose_devices(wanted, requester, SUPPLY)) == expected


def test_a_wish_that_cannot_be_had_is_noted():
    """A preferred pod gets the next best, and a report says so."""
    answer = choice(request("ace", 2), own("ab", {AFFINITY: "nvlink"}), SUPPLY)
    assert answer.notes == (
        "plan of default/p container main cannot be kept: b is not available",
        "no free set has affinity nvlink",
    )
    answer = choice(request("ab", 2), own("", {"coterie.gpu/nic": "preferred"}), SUPPLY)
    assert answer.notes == ("no free set has an RDMA NIC within PXB",)


@pytest.mark.parametrize(
    ("planned", "must", "reported_as"),
    [
        ("xy", "", "x, y is not available"),
        ("abc", "", "it names 3 devices, the kubelet requests 2"),
        ("ab", "c", "the kubelet allocates c in any case"),
        ("ac", "", "it no longer meets what is required"),
    ],
)
def test_why_a_plan_is_not_kept_is_reported(planned, must, reported_as):
    """The extender's promise was broken: people want to know by what."""
    answer = choice(request("abcdefgh", 2, must), own(planned, REQUIRED), SUPPLY)
    assert answer.notes == (f"plan of default/p container main cannot be kept: {reported_as}",)


def test_a_refusal_says_what_was_required_and_what_became_of_the_plan():
    """The message ends in the pod's status, where the user reads it."""
    answer = choose_devices(request("ace", 2), own("ab", REQUIRED), SUPPLY)
    assert str(answer) == (
        "no set of devices meets the pod's requirements: affinity nvlink: no free GPU set has the "
        "required affinity; plan of default/p container main cannot be kept: b is not available"
    )


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"coterie.gpu/nic": "required"}, "an RDMA NIC within PXB"),
        ({"coterie.gpu/min-bandwidth": "100000"}, "at least 100000 GB/s"),
        (
            {AFFINITY: "numa", POLICY: "required", "coterie.gpu/min-bandwidth": "100000"},
            "affinity numa, at least 100000 GB/s",
        ),
    ],
)
def test_conditions_are_never_lessened(annotations, reason):
    """A NIC that is required and a minimum bandwidth are conditions, whatever the policy."""
    answer = refusal(request("abcdefgh", 2), own("", annotations), SUPPLY)
    assert got(answer) is RefusalReason.REQUIRED
    assert answer.detail.startswith(reason)


def test_annotations_that_cannot_be_read_count_as_none():
    """The kubelet has admitted the pod: an error now would fail it for good."""
    answer = choice(request("bcd", 2), own("", {AFFINITY: "nvlnk"}), SUPPLY)
    assert got(answer) == ("cd", BEST)
    assert "placed by default: annotation coterie.gpu/affinity is 'nvlnk'" in answer.notes[0]


def test_what_others_wait_for_is_left_to_them_where_there_is_something_else():
    """A pod without a plan takes the worse set rather than another pod's planned one."""
    reserved = replace(SUPPLY, reserved=frozenset("ab"))
    assert got(choose_devices(request("abcd", 2), own(), reserved)) == ("cd", BEST)
    assert got(choose_devices(request("abce", 2), own(), reserved)) == ("ce", BEST)
    assert got(choose_devices(request("abc", 2), own(), reserved)) == ("ab", BEST)
    assert got(choose_devices(request("abce", 2), own("", REQUIRED), reserved)) == ("ab", BEST)
    assert got(choose_devices(request("abcd", 2, "a"), own(), reserved)) == ("ab"[0] + "c", BEST)


def test_of_several_candidates_the_first_plan_that_can_be_kept_is_used():
    """Equal plans may be swapped; what one of them requires holds for each of them."""
    one, other = own("ab"), own("cd")
    both = Ambiguous((one, other))
    assert got(choose_devices(request("abcd", 2), both, SUPPLY)) == ("ab", SWAPPED)
    assert got(choose_devices(request("bcd", 2), both, SUPPLY)) == ("cd", SWAPPED)
    assert got(choose_devices(request("bde", 2), both, SUPPLY)) == ("bd", SUBSTITUTE)
    strict = Ambiguous((own("ac"), own("cd", REQUIRED)))
    assert got(choose_devices(request("abcd", 2), strict, SUPPLY)) == ("cd", SWAPPED)
    assert got(choose_devices(request("abc", 2), strict, SUPPLY)) == ("ab", SUBSTITUTE)
    assert got(choose_devices(request("ac", 2), strict, SUPPLY)) is RefusalReason.REQUIRED
    answer = refusal(request("ac", 2), Ambiguous((own(), own("", REQUIRED))), SUPPLY)
    assert answer.detail.startswith("affinity nvlink: ")
    unplanned = Ambiguous((own(), own()))
    assert got(choose_devices(request("bcd", 2), unplanned, SUPPLY)) == ("cd", BEST)


def test_requirements_that_exclude_each_other_refuse():
    """It is unknown which of the two would get a lesser set."""
    split = machine(
        [Gpu(uuid=one) for one in "abc"],
        links={(0, 1): NVLINK(1)},
        levels={(0, 2): PcieLevel.PIX, "else": PcieLevel.SYS},
    )
    supply = Supply(gpus(*"abc"), build_machine(split))
    linked, switched = own("", REQUIRED), own("", {AFFINITY: "pcie-switch", POLICY: "required"})
    answer = refusal(request("abc", 2), Ambiguous((linked, switched)), supply)
    assert got(answer) is RefusalReason.REQUIRED
    assert "no set meets the requirements of every pod that may be requesting" in answer.detail


def test_requirements_that_can_be_met_together_are():
    """The best set of each may miss the other's, while a third one has both."""
    split = machine(
        [Gpu(uuid=one) for one in "abcd"],
        links={(0, 1): NVLINK(4), (2, 3): NVLINK(1)},
        levels={(2, 3): PcieLevel.PIX, "else": PcieLevel.SYS},
    )
    supply = Supply(gpus(*"abcd"), build_machine(split))
    linked, switched = own("", REQUIRED), own("", {AFFINITY: "pcie-switch", POLICY: "required"})
    answer = choice(request("abcd", 2), Ambiguous((linked, switched)), supply)
    assert got(answer) == ("cd", BEST)
    assert answer.notes == ()


def test_models_are_mixed_at_last():
    """A preferred pod is better off with unlike GPUs than failed for good."""
    mixed = machine([Gpu(uuid=one, model=f"M{i // 2}") for i, one in enumerate("abcd")])
    supply = Supply(gpus(*"abcd"), build_machine(mixed), reserved=frozenset("cd"))
    assert got(choose_devices(request("acd", 2), own(), supply)) == ("cd", BEST)
    answer = choice(request("acb", 3), own(), supply)
    assert got(answer) == ("abc", BEST)
    assert answer.notes == ("no free GPUs of one model are as many: models are mixed",)
    strict = own("", {"coterie.gpu/min-bandwidth": "1"})
    assert got(choose_devices(request("acb", 3), strict, supply)) is RefusalReason.REQUIRED


def test_without_a_topology_the_machine_s_order_decides():
    """And nothing can be required of two devices or more: how they are connected is unknown."""
    for known in (None, build_machine(named(machine([Gpu()] * 2)))):
        supply = Supply(gpus(*"dcba"), known)
        assert got(choose_devices(request("abcd", 2), own(), supply)) == ("dc", BEST)
        assert got(choose_devices(request("abcd", 2), UNKNOWN_POD, supply)) == ("dc", HARMLESS)
        assert got(choose_devices(request("abcd", 2), own("ab", REQUIRED), supply)) == (
            "ba",
            PLANNED,
        )
        answer = choose_devices(request("abcd", 2), own("", REQUIRED), supply)
        assert answer == AllocationRefusal(
            RefusalReason.REQUIRED, "affinity nvlink: how these devices are connected is unknown"
        )


def test_a_preference_is_no_requirement_where_links_are_unknown():
    """Nor is a level that one device always has."""
    supply = Supply(gpus(*"abcd"))
    assert got(choose_devices(request("abcd", 2), own("", {AFFINITY: "nvlink"}), supply)) == (
        "ab",
        BEST,
    )
    assert got(choose_devices(request("abcd", 1), own("", REQUIRED), supply)) == ("a", BEST)


def test_replicas_are_spread_or_packed():
    """A container never shares a GPU with itself while there is another."""
    supply = Supply(replicas(2, "a", "b"), held=frozenset({"b::0"}))
    wanted = DeviceRequest(GPU, frozenset({"a::0", "a::1", "b::1"}), frozenset(), 1)
    assert choice(wanted, own(), supply).ids == ("a::0",)
    packed = replace(supply, shared_policy=SharedPolicy.PACKED)
    assert choice(wanted, own(), packed).ids == ("b::1",)
    assert choice(replace(wanted, size=2), own(), supply).ids == ("a::0", "b::1")
    assert choice(replace(wanted, size=3), own(), supply).ids == ("a::0", "a::1", "b::1")
    one_only = replace(supply, is_one_only=True)
    assert got(choose_devices(replace(wanted, size=2), own(), one_only)) is RefusalReason.ONE_ONLY
    assert choice(wanted, own(), one_only).ids == ("a::0",)
    assert got(choose_devices(request("ab", 2), own(), replace(SUPPLY, is_one_only=True))) == (
        "ab",
        BEST,
    )


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(replace(SUPPLY, unhealthy=frozenset("c")), id="unhealthy"),
        pytest.param(replace(SUPPLY, held=frozenset("c")), id="held"),
    ],
)
def test_what_is_unwell_or_held_is_not_given_though_the_kubelet_offers_it(known):
    """The list that says so may still be on its way, or the kubelet has lost count."""
    assert got(choose_devices(request("abcd", 2), own("cd"), known)) == ("ab", SUBSTITUTE)
    assert got(choose_devices(request("cd", 2), own("cd"), known)) is RefusalReason.TOO_FEW
    assert (
        got(choose_devices(request("abcd", 2, "c"), own("cd"), known)) is RefusalReason.MUST_INCLUDE
    )


def test_only_what_is_held_counts_as_taken():
    """A replica that is unhealthy is neither free nor taken."""
    wanted = DeviceRequest(GPU, frozenset({"a::0", "a::1", "b::0", "b::1"}), frozenset(), 1)
    supply = Supply(replicas(2, "a", "b"), held=frozenset({"a::0"}))
    assert choice(wanted, own(), supply).ids == ("b::0",)
    supply = Supply(replicas(2, "a", "b"), unhealthy=frozenset({"a::0"}))
    assert choice(wanted, own(), supply).ids == ("a::1",)


def test_instances_are_packed_even_where_their_topology_is_known():
    """What they are to each other is the same everywhere; whole GPUs are worth keeping."""
    resource = instances(2, 2)
    wanted = DeviceRequest(resource.name, frozenset({"M0-0", "M0-1", "M1-1"}), frozenset(), 1)
    known = build_machine(machine([Gpu(uuid=one.id) for one in resource.devices]))
    for supply in (Supply(resource), Supply(resource, known)):
        assert choice(wanted, own(), supply).ids == ("M1-1",)
    answer = refusal(replace(wanted, size=2), own("", REQUIRED), Supply(resource, known))
    assert answer.detail == (
        "affinity nvlink: never on this node: no GPU set of that size has the required affinity"
    )


def test_counted_devices_are_reserved_and_packed_too():
    """Instances can be planned for, and a GPU that another profile uses is no whole one."""
    resource = instances(2, 2)
    wanted = DeviceRequest(
        resource.name, frozenset(one.id for one in resource.devices), frozenset(), 1
    )
    reserved = Supply(resource, reserved=frozenset({"M0-0", "M0-1"}))
    assert choice(wanted, own(), reserved).ids == ("M1-0",)
    busy = Supply(resource, busy_gpus=frozenset({"G1"}))
    assert choice(wanted, own(), busy).ids == ("M1-0",)


# --- Properties ------------------------------------------------------------------------------

WISHES = st.fixed_dictionaries(
    {},
    optional={
        AFFINITY: st.sampled_from(["nvlink", "pcie-switch", "numa", "none"]),
        POLICY: st.sampled_from(["preferred", "required"]),
        "coterie.gpu/nic": st.sampled_from(["preferred", "required"]),
        "coterie.gpu/min-bandwidth": st.sampled_from(["1", "20", "100"]),
    },
)


@settings(max_examples=up_to(100))
@given(
    topology=node_topologies(max_gpus=6), parsed=WISHES, chance=st.randoms(use_true_random=False)
)
def test_an_answer_matches_its_request_and_keeps_every_requirement(topology, parsed, chance):
    """Compared with all sets: a refusal only where none serves, the plan wherever it can be had."""
    topology = named(topology)
    ids = [str(gpu.uuid) for gpu in topology.gpus]
    some = [one for one in ids if chance.random() < 0.8]
    must = frozenset(one for one in some if chance.random() < 0.15)
    size = chance.randint(max(1, len(must)), max(1, len(must), len(some)))
    planned = chance.sample(ids, min(size, len(ids))) if chance.random() < 0.5 else []
    known = build_machine(topology)
    supply = Supply(
        gpus(*ids),
        known,
        unhealthy=frozenset(one for one in ids if one not in must and chance.random() < 0.1),
        held=frozenset(one for one in ids if one not in must and chance.random() < 0.1),
        reserved=frozenset(one for one in ids if chance.random() < 0.3),
    )
    requester = own("".join(planned), parsed)
    wanted = DeviceRequest(GPU, frozenset(some), must, size)
    answer = choose_devices(wanted, requester, supply)
    assert choose_devices(wanted, requester, supply) == answer
    policy = parse_policy(parsed)
    usable = wanted.available - supply.unhealthy - supply.held
    fitting = [
        frozenset(one)
        for one in combinations(sorted(usable), size)
        if must <= set(one) and serves(frozenset(one), policy, known)
    ]
    if isinstance(answer, AllocationRefusal):
        assert not fitting
        assert answer.reason is RefusalReason.TOO_FEW or requires(policy, size)
        return
    assert len(answer.ids) == len(set(answer.ids)) == size
    assert must <= set(answer.ids) <= usable
    assert list(answer.ids) == sorted(answer.ids, key=ids.index)
    if requires(policy, size):
        assert frozenset(answer.ids) in fitting
    is_kept = frozenset(planned) in fitting
    assert (answer.basis is PLANNED) == (is_kept and bool(planned))
    spared = usable - supply.reserved | must
    if answer.basis is not PLANNED and len(spared) >= size and not requires(policy, size):
        models = {gpu.model for gpu in topology.gpus}
        if policy.affinity is Affinity.NONE or (len(models) == 1 and None not in models):
            assert set(answer.ids) <= spared


@pytest.mark.parametrize("name", ["dgx-1-v100", "8x-a6000-bridged", "dgx-a100", "dgx-2"])
def test_without_a_plan_the_answer_is_the_core_s(name):
    """On real machines, up to 16 GPUs, the same set as the extender would plan."""
    topology = named(load_recording(name))
    known = build_machine(topology)
    ids = [gpu.uuid or "" for gpu in topology.gpus]
    supply = Supply(gpus(*ids), known)
    for size in (1, 2, 3, 4, 8):
        for mask in (known.all_gpus, known.all_gpus & ~0b1001):
            if mask.bit_count() < size:
                continue
            found = select_set(known, available=mask, size=size)
            assert isinstance(found, Selected)
            free = frozenset(one for i, one in enumerate(ids) if mask >> i & 1)
            answer = choice(DeviceRequest(GPU, free, frozenset(), size), own(), supply)
            assert answer.ids == tuple(ids[i] for i in found.gpus)
