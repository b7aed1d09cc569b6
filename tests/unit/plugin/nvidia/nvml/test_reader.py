"""The machine that NVML and sysfs report: recorded machines, old drivers, lost GPUs, events."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from plugin.errors import ReadingError
from plugin.machine import NO_ANSWER, EventKind, GpuEvent
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.gpu import FABRIC_NOT_READY, MIG_NOT_READ
from plugin.nvidia.nvml.library import EventBit, NvmlCode
from plugin.nvidia.nvml.reader import NvmlMachine
from tests.fake_nvml import FakeFabric, FakeLink, FakeMig, bus_id_of, fake_of, installed, uuid_of
from tests.fake_sysfs import FakeSysfs, write_machine
from tests.unit.plugin.machine_values import mig_device, xid_event
from tests.unit.plugin.patient_machine import PatientMachine
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    LinkKind,
    PcieLevel,
    find_gpu_model,
)
from topology.recordings import load_recording, recording_names

NVIDIA = tuple(
    name for name in recording_names() if "AMD" not in (load_recording(name).gpus[0].model or "")
)
LOST = NvmlCode.GPU_IS_LOST
MIB = 1 << 20
ANCESTOR = "nvmlDeviceGetTopologyCommonAncestor"
STATE = "nvmlDeviceGetNvLinkState"
FAR_TYPE = "nvmlDeviceGetNvLinkRemoteDeviceType"


@contextmanager
def reader_on(fake, root, **timing):
    """A reader of this library and of the /sys below `root`, closed in the end."""
    with installed(fake):
        machine = PatientMachine(FakeSysfs(root).reader, **timing)
        try:
            yield machine
        finally:
            machine.close()


ANY_INSTANCE = 0xFFFFFFFF
"""NVML_GPU_INSTANCE_ID_ANY (nvml.h)."""


@pytest.fixture
def fake():
    """A DGX H100."""
    return fake_of(load_recording("dgx-h100"))


@pytest.fixture
def machine(fake, tmp_path):
    """Its reader."""
    with reader_on(fake, tmp_path) as machine:
        yield machine


# --- recorded machines ---


@pytest.mark.parametrize("name", NVIDIA)
def test_a_recorded_machine_is_read_as_it_was_recorded(name, tmp_path):
    """NVML alone: links, levels, fabrics and NUMA nodes; what was not recorded stays unknown."""
    recorded = load_recording(name)
    with reader_on(fake_of(recorded), tmp_path) as machine:
        reading = machine.read()
    topology = reading.topology
    assert topology.links == recorded.links
    assert topology.pcie == recorded.pcie
    assert topology.fabrics == recorded.fabrics
    assert topology.p2p is recorded.p2p
    for found, drawn, known in zip(reading.gpus, topology.gpus, recorded.gpus, strict=True):
        assert found.gpu is drawn
        assert drawn.numa_node == known.numa_node
        assert drawn.model == known.model
        model = find_gpu_model(known.model)
        # A recording leaves the generation to the model's name; NVML reports that of the link.
        has_links = any(link.is_up for link in recorded.links[found.index])
        assert drawn.link_generation == (model.link_generation if model and has_links else None)


@pytest.mark.parametrize("name", NVIDIA)
def test_sysfs_has_levels_that_nvml_has_not(name, tmp_path):
    """Old driver: the kernel's tree gives every level that the recording knows, NICs' too."""
    recorded = load_recording(name)
    write_machine(FakeSysfs(tmp_path), recorded, bus_id_of)
    fake = fake_of(recorded)
    fake.missing.add(ANCESTOR)
    with reader_on(fake, tmp_path) as machine:
        reading = machine.read()
    for levels, known_levels in zip(reading.topology.pcie, recorded.pcie, strict=True):
        assert_contains(levels, known_levels)
    assert len(reading.topology.nics) == len(recorded.nics)
    nics = {nic.name: nic for nic in reading.topology.nics}
    for nic in recorded.nics:
        assert_contains(nics[nic.name].levels, nic.levels)
        assert nics[nic.name].is_rdma
    for found, known in zip(reading.gpus, recorded.gpus, strict=True):
        assert known.numa_node in {found.gpu.numa_node, None}
    assert f"NVML has no value: {ANCESTOR}: Function Not Found" in reading.notes


def assert_contains(found, known):
    """What was recorded is found; what was not may be."""
    assert [f for f, k in zip(found, known, strict=True) if k is not PcieLevel.UNKNOWN] == [
        level for level in known if level is not PcieLevel.UNKNOWN
    ]


def test_the_kernel_describes_processors_and_numa_nodes(fake, tmp_path):
    """Facts that NVML does not have arrive in the same reading."""
    files = FakeSysfs(tmp_path)
    files.cpuinfo("vendor_id : AuthenticAMD\n")
    files.numa({0: "10 32", 1: "32 10"})
    with reader_on(fake, tmp_path) as machine:
        reading = machine.read()
    assert reading.topology.cpu is CpuPlatform.AMD
    assert reading.numa_distances == ((0, (10, 32)), (1, (32, 10)))
    assert reading.driver_version == "580.65.06"


def test_identity_of_a_gpu(machine, fake):
    """Index, minor, id in the kernel's spelling, memory in MiB."""
    fake.gpus[2].minor = 7
    fake.gpus[2].n_c2c_links = 1
    gpu = machine.read().gpus[2]
    assert (gpu.index, gpu.uuid, gpu.nodes, gpu.n_c2c_links) == (
        2,
        uuid_of(2),
        ("/dev/nvidia7",),
        1,
    )
    assert gpu.gpu.pci_bus_id == bus_id_of(2)
    assert gpu.gpu.memory_mib == fake.gpus[2].memory_bytes // MIB
    assert (gpu.is_partitioned, gpu.partitions, gpu.fault) == (False, (), None)


def test_memory_of_several_numa_nodes_is_no_node(machine, fake):
    """Only one nearest node is an answer."""
    fake.gpus[0].memory_nodes = (0, 1)
    assert machine.read().gpus[0].gpu.numa_node is None


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-2", "dgx-1-v100", "8x-a100-pcie-pairs"])
def test_how_many_calls_a_reading_takes(name, tmp_path, record_property):
    """Bounds for the first reading, one more and a poll; the figures go into the test's record."""
    fake = fake_of(load_recording(name))
    counts = []
    with reader_on(fake, tmp_path) as machine:
        for call in (machine.read, machine.read, machine.faults):
            before = fake.n_calls
            call()
            counts.append(fake.n_calls - before)
    record_property("nvml_calls", counts)
    n = len(fake.gpus)
    assert counts[0] <= 3 + n * (12 + 3 * 12) + n * (n - 1)
    assert counts[1] <= 3 + n * (12 + 12)
    assert counts[2] == n * (3 if fake.gpus[0].fabric else 2)


def test_a_numa_node_that_only_nvml_knows_counts_for_levels(fake, tmp_path):
    """Firmware says -1; with NVML's nodes the tree distinguishes NODE from SYS."""
    for i in range(8):
        FakeSysfs(tmp_path).device(f"pci0000:{i:02x}", f"0000:{i:02x}:01.0", bus_id_of(i), numa=-1)
    fake.missing.add(ANCESTOR)
    with reader_on(fake, tmp_path) as machine:
        reading = machine.read()
    assert [gpu.gpu.numa_node for gpu in reading.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert reading.topology.pcie == load_recording("dgx-h100").pcie


# --- NVLink ---


def test_link_states_by_field_count_sleeping_links(machine, fake):
    """From Hopper on one call has all states; a link that sleeps wakes when it is used."""
    states = [1, 2, 0, 3]
    for gpu in fake.gpus[:2]:
        gpu.links = [FakeLink(state) for state in states]
        gpu.n_switch_links = None
    assert machine.read().topology.links[0][1] == AcceleratorLink(LinkKind.NVLINK, 2)
    assert fake.calls[STATE] == 0


def test_an_older_driver_has_states_one_by_one(machine, fake):
    """Without the field the old call counts, also on Hopper."""
    for gpu in fake.gpus:
        gpu.has_state_fields = False
    assert machine.read().topology == machine_of("dgx-h100", fake)
    assert fake.calls[STATE] > 0


def machine_of(name, fake):
    """What a reader with nothing in the way makes of it."""
    recorded = load_recording(name)
    gpus = tuple(
        replace(
            gpu,
            uuid=faked.uuid,
            pci_bus_id=bus_id_of(i),
            memory_mib=faked.memory_bytes // MIB,
            link_generation=4,
        )
        for i, (gpu, faked) in enumerate(zip(recorded.gpus, fake.gpus, strict=True))
    )
    return replace(recorded, gpus=gpus, nics=(), cpu=CpuPlatform.UNKNOWN, name=None, source=None)


def test_links_that_a_product_lacks_are_passed_over(tmp_path):
    """An A800 has 8 links of the A100's 12, so a gap is not the end where the count is known."""
    fake = fake_of(load_recording("dgx-a100"))
    for gpu in fake.gpus:
        gpu.links = [FakeLink(-1), *([FakeLink()] * 8), FakeLink(-1)]
        gpu.n_links_field = 8
    with reader_on(fake, tmp_path) as machine:
        assert machine.read().topology.links[0][1] == AcceleratorLink(LinkKind.NVLINK, 8)
    assert fake.calls[STATE] == 8 * 9


def test_as_many_links_as_nvml_can_count(tmp_path):
    """A GPU that answers for every link up to NVML's last one."""
    fake = fake_of(load_recording("dgx-a100"))
    for gpu in fake.gpus:
        gpu.links = [FakeLink()] * 36
    with reader_on(fake, tmp_path) as machine:
        assert machine.read().topology.links[0][1] == AcceleratorLink(LinkKind.NVLINK, 36)


def test_a_driver_without_link_calls_says_nothing_of_links(tmp_path):
    """Unknown, not none."""
    fake = fake_of(load_recording("dgx-1-v100"))
    fake.missing |= {STATE, "nvmlDeviceGetFieldValues"}
    with reader_on(fake, tmp_path) as machine:
        reading = machine.read()
    assert reading.topology.links[0][1] == UNKNOWN_LINK
    assert f"NVML has no value: {STATE}: Function Not Found" in reading.notes


@pytest.mark.parametrize("name", ["dgx-1-v100", "gb200-tray", "summit"])
def test_a_driver_without_far_types_has_pci_ids(name, tmp_path):
    """GPUs by their ids, switches by the sentinel."""
    recorded = load_recording(name)
    fake = fake_of(recorded)
    fake.missing.add(FAR_TYPE)
    for gpu in fake.gpus:
        gpu.n_switch_links = None
    with reader_on(fake, tmp_path) as machine:
        assert machine.read().topology.links == recorded.links


def test_the_far_end_may_be_a_switch_by_its_class(tmp_path):
    """An NVSwitch with an id of its own, and a driver that does not know the type."""
    fake = fake_of(load_recording("dgx-a100"))
    fake.missing.add(FAR_TYPE)
    FakeSysfs(tmp_path).device("pci0000:c0", "0000:c0:01.0", "0000:c1:00.0", pci_class="0x068000")
    with reader_on(fake, tmp_path) as machine:
        assert machine.read().topology.fabrics == load_recording("dgx-a100").fabrics


def test_where_links_end_is_read_once(tmp_path):
    """A second reading reads states only, and sees a link that went down."""
    fake = fake_of(load_recording("dgx-1-v100"))
    with reader_on(fake, tmp_path) as machine:
        machine.read()
        before = fake.calls[FAR_TYPE]
        link = next(i for i, link in enumerate(fake.gpus[0].links) if link.state)
        fake.gpus[0].links[link].state = 0
        topology = machine.read().topology
    assert fake.calls[FAR_TYPE] == before
    recorded = load_recording("dgx-1-v100")
    assert (recorded.links[0][1].n_links, topology.links[0][1]) == (1, NO_LINK)
    assert topology.links[0][2:] == recorded.links[0][2:]


def test_a_fabric_that_is_not_up_means_no_nvlink(machine, fake):
    """And a note says why."""
    for gpu in fake.gpus:
        gpu.fabric = FakeFabric(state=2)
    reading = machine.read()
    assert reading.topology.links[0][1] == NO_LINK
    assert [fabric.is_up for fabric in reading.topology.fabrics] == [False]
    assert any("registration in progress" in note for note in reading.notes)


@pytest.mark.parametrize("state", [1, 2])
def test_gpus_on_a_switch_wait_for_the_fabric_manager(machine, fake, state):
    """CUDA fails on them with 802 until they are registered; then the links are read again."""
    for gpu in fake.gpus:
        gpu.fabric = FakeFabric(state=state)
    reading = machine.read()
    uuids = [uuid_of(i) for i in range(8)]
    assert reading.faults == dict.fromkeys(uuids, FABRIC_NOT_READY)
    assert machine.faults() == reading.faults
    for gpu in fake.gpus:
        gpu.fabric = FakeFabric()
    assert machine.faults() == {}
    reading = machine.read()
    assert reading.faults == {}
    assert reading.topology.links == load_recording("dgx-h100").links
    assert reading.topology.pcie == load_recording("dgx-h100").pcie
    fake.gpus[5].fabric = FakeFabric(state=state)  # the fabric manager was restarted
    assert machine.faults() == {uuid_of(5): FABRIC_NOT_READY}


@pytest.mark.parametrize(
    ("facts", "is_waiting"),
    [
        pytest.param({"links": [FakeLink(0)] * 18}, True, id="links that are not up yet"),
        pytest.param({"links": [], "n_switch_links": None}, False, id="no links: a PCIe card"),
        pytest.param({"mig": {}}, False, id="MIG uses no NVLink"),
        pytest.param(
            {"links": [FakeLink(1, 0, "00000000:25:00.0")] * 18, "n_switch_links": 0},
            False,
            id="links to GPUs",
        ),
        pytest.param({"fabric": FakeFabric(state=0)}, False, id="no fabric"),
        pytest.param({"fabric": FakeFabric(state=3, status=999)}, False, id="registration failed"),
    ],
)
def test_which_gpus_wait_for_the_fabric_manager(machine, fake, facts, is_waiting):
    """A GPU without NVSwitch works without it."""
    fake.gpus[2].fabric = FakeFabric(state=1)
    for key, value in facts.items():
        setattr(fake.gpus[2], key, value)
    faults = {uuid_of(2): FABRIC_NOT_READY} if is_waiting else {}
    assert machine.read().faults == faults
    assert machine.faults() == faults


def test_an_old_driver_reports_the_fabric_too(machine, fake):
    """Before R545 the call has another name."""
    fake.missing.add("nvmlDeviceGetGpuFabricInfoV")
    fake.gpus[2].fabric = FakeFabric(state=1)
    assert machine.read().faults == {uuid_of(2): FABRIC_NOT_READY}


def test_a_guest_does_not_know_its_levels(fake, tmp_path):
    """GPUs on the root bus: NVML's answer is about the guest; links count all the same."""
    for i in range(8):
        FakeSysfs(tmp_path).device("pci0000:00", bus_id_of(i), numa=0)
    with reader_on(fake, tmp_path) as machine:
        topology = machine.read().topology
    assert {topology.pcie[0][1], topology.pcie[2][3]} == {PcieLevel.UNKNOWN}
    assert topology.links == load_recording("dgx-h100").links


# --- MIG ---


def test_mig_devices_with_gaps(machine, fake):
    """Each with its profile and ids; one that cannot be named is left out with a note."""
    fake.gpus[1].mig = {
        0: FakeMig("MIG-a", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", gi=1, ci=0, shape=(3, 3, 40320)),
        3: FakeMig("MIG-b", "", gi=9, ci=2, shape=(1, 1, 9856)),
        5: FakeMig("MIG-c", "", gi=11, ci=0, shape=(0, 0, 0)),
    }
    reading = machine.read()
    assert reading.gpus[1].is_partitioned
    assert reading.gpus[1].partitions == (
        mig_device("MIG-a", "3g.40gb", 0, 1, 0, 40320, parent=uuid_of(1)),
        mig_device("MIG-b", "1g.10gb", 3, 9, 2, 9856, parent=uuid_of(1)),
    )
    assert any("MIG device 5" in note for note in reading.notes)
    assert not reading.gpus[0].is_partitioned


def test_mig_devices_that_are_gone_are_noticed_by_a_poll(machine, fake):
    """Without an event for it: they must not be offered for five minutes more."""
    mig = {index: FakeMig(f"MIG-{index}", "H100 MIG 1g.10gb", gi=index + 1) for index in range(3)}
    fake.gpus[1].mig = mig
    machine.read()
    machine.wait(0)
    assert machine.faults() == {}
    assert machine.wait(0) == ()
    del mig[1]
    assert machine.faults() == {}
    assert machine.wait(60) == (GpuEvent(EventKind.LOST_EVENTS),)
    assert [one.id for one in machine.read().gpus[1].partitions] == ["MIG-0", "MIG-2"]
    assert machine.faults() == {}
    assert machine.wait(0) == ()


def test_a_mig_device_of_which_a_call_fails_is_not_gone(machine, fake):
    """An error is no proof."""
    fake.gpus[1].mig = {0: FakeMig("MIG-0", "H100 MIG 1g.10gb")}
    machine.read()
    machine.wait(0)
    fake.errors["nvmlDeviceGetHandleByUUID"] = 999
    assert machine.faults() == {}
    assert machine.wait(0) == ()


MIG_MODE = "nvmlDeviceGetMigMode"
BY_HEART = frozenset({"nvmlDeviceGetUUID"})


@pytest.mark.parametrize(
    "symbol",
    [MIG_MODE, "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"],
)
def test_an_error_about_mig_does_not_mean_that_mig_is_off(machine, fake, symbol):
    """The GPU would be offered whole while its instances are in use."""
    fake.gpus[1].mig = {0: FakeMig("MIG-0", "H100 MIG 1g.10gb")}
    known = machine.read().gpus[1]
    fake.gpus[1].errors[symbol] = 999
    gpu = machine.read().gpus[1]
    assert gpu == replace(known, fault="NVML: Unknown Error")
    assert machine.faults() == {}
    fake.gpus[1].errors.clear()
    assert machine.read().gpus[1] == known


@pytest.mark.parametrize(
    "symbol", ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"]
)
def test_a_gpu_switched_to_mig_that_cannot_be_read_is_at_fault(machine, fake, symbol):
    """What was read before says that it is whole."""
    machine.read()
    machine.wait(0)
    fake.gpus[1].mig = {0: FakeMig("MIG-0", "H100 MIG 1g.10gb")}
    fake.gpus[1].errors[symbol] = 999
    assert machine.read().faults == {uuid_of(1): "NVML: Unknown Error"}
    assert machine.faults() == {uuid_of(1): MIG_NOT_READ}
    assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
    assert machine.read().faults == {uuid_of(1): "NVML: Unknown Error"}
    assert machine.faults() == {uuid_of(1): MIG_NOT_READ}
    assert machine.wait(0) == ()  # said once: it is read again as any machine is
    fake.gpus[1].errors.clear()
    assert [one.id for one in machine.read().gpus[1].partitions] == ["MIG-0"]
    assert machine.faults() == {}


def test_a_gpu_switched_to_mig_while_a_poll_found_it_at_fault(machine, fake):
    """No reading came between."""
    machine.read()
    machine.wait(0)
    fake.gpus[1].error, fake.gpus[1].known_by_heart = LOST, BY_HEART
    assert list(machine.faults()) == [uuid_of(1)]
    fake.gpus[1].mig = {0: FakeMig("MIG-0", "H100 MIG 1g.10gb")}
    fake.gpus[1].error = None
    assert machine.faults() == {uuid_of(1): MIG_NOT_READ}
    assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"])
def test_a_mig_device_stays_when_a_call_about_it_fails(machine, fake, symbol):
    """A container may hold it."""
    fake.gpus[1].mig = {0: FakeMig("MIG-0", "H100 MIG 1g.10gb")}
    known = machine.read().gpus[1]
    fake.errors[symbol] = 999
    assert machine.read().gpus[1].partitions == known.partitions


def test_a_gpu_with_mig_that_is_lost_from_the_start(machine, fake):
    """It looks whole until it is read, so it stays at fault until then, which is soon."""
    gpu = fake.gpus[1]
    gpu.mig = {0: FakeMig("MIG-0", "H100 MIG 1g.10gb")}
    gpu.error, gpu.known_by_heart = LOST, BY_HEART
    assert machine.read().gpus[1].partitions == ()
    machine.wait(0)
    assert machine.faults() == {uuid_of(1): "NVML: GPU is lost"}
    assert machine.wait(0) == ()
    gpu.error = None
    assert machine.faults() == {uuid_of(1): MIG_NOT_READ}
    assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
    assert [one.id for one in machine.read().gpus[1].partitions] == ["MIG-0"]
    assert machine.faults() == {}


def test_a_gpu_without_mig_that_is_lost_from_the_start(machine, fake):
    """It is well with the first poll that it answers."""
    fake.gpus[1].error, fake.gpus[1].known_by_heart = LOST, BY_HEART
    assert list(machine.read().faults) == [uuid_of(1)]
    machine.wait(0)
    fake.gpus[1].error = None
    assert machine.faults() == {}
    assert machine.wait(0) == ()


def test_a_gpu_whose_mig_mode_was_never_read_is_at_fault(machine, fake):
    """Also where all else can be read."""
    fake.gpus[1].errors[MIG_MODE] = 999
    faults = {uuid_of(1): "NVML: Unknown Error"}
    assert machine.read().faults == faults
    assert machine.faults() == faults
    fake.gpus[1].errors[MIG_MODE] = NvmlCode.NOT_SUPPORTED
    assert machine.faults() == {}
    assert machine.read().faults == {}


# --- faults ---


def assert_only_lost(reading, lost):
    """One GPU is at fault, the rest is as on a good day."""
    recorded = load_recording("dgx-h100")
    assert [gpu.uuid for gpu in reading.gpus if gpu.fault] == [uuid_of(lost)]
    assert [gpu.uuid for gpu in reading.gpus] == [uuid_of(i) for i in range(8)]
    assert reading.topology.pcie == recorded.pcie
    assert reading.gpus[lost].gpu.model == recorded.gpus[lost].model
    assert any(note.startswith(f"GPU {lost} (") for note in reading.notes)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"error": LOST}, id="every call fails"),
        pytest.param({"error": LOST, "handle_error": LOST}, id="it has no handle"),
        pytest.param({"error": NvmlCode.RESET_REQUIRED}, id="it wants a reset"),
        pytest.param({"error": 999}, id="unknown error"),
        pytest.param(
            {"error": LOST, "known_by_heart": frozenset({"nvmlDeviceGetUUID"})}, id="uuid by heart"
        ),
        pytest.param({"errors": {"nvmlDeviceGetMemoryInfo": 999}}, id="unknown error for memory"),
        pytest.param({"errors": {"nvmlDeviceGetFieldValues": LOST}}, id="lost on the way"),
        pytest.param(
            {"errors": {"nvmlDeviceGetPciInfo_v3": LOST, "nvmlDeviceGetMemoryInfo": LOST}},
            id="lost early",
        ),
        pytest.param({"recovery_action": 1}, id="the driver wants a reset"),
    ],
)
def test_one_lost_gpu_leaves_the_others(machine, fake, facts):
    """Whatever fails: the others are read, it stays with its facts and fault, and comes back."""
    machine.read()
    assert machine.faults() == {}
    good = {key: getattr(fake.gpus[3], key) for key in facts}
    for key, value in facts.items():
        setattr(fake.gpus[3], key, value)
    faults = machine.faults()
    assert list(faults) == [uuid_of(3)]
    reading = machine.read()
    assert_only_lost(reading, 3)
    # The same text from every call, or a report would be written at each.
    assert machine.faults() == faults == {uuid_of(3): reading.gpus[3].fault}
    for key, value in good.items():
        setattr(fake.gpus[3], key, value)
    assert machine.faults() == {}
    reading = machine.read()
    assert [gpu.fault for gpu in reading.gpus] == [None] * 8
    assert reading.topology.links == load_recording("dgx-h100").links


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetName", "nvmlDeviceGetMigMode", FAR_TYPE])
@pytest.mark.parametrize("code", [LOST, NvmlCode.RESET_REQUIRED, NvmlCode.GPU_NOT_FOUND])
def test_any_call_may_report_that_a_gpu_is_gone(machine, fake, symbol, code):
    """NVML caches some answers, so the first call that is not cached is the one to fail."""
    fake.gpus[3].n_switch_links = None
    fake.gpus[3].errors[symbol] = code
    assert [gpu.index for gpu in machine.read().gpus if gpu.fault] == [3]


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        ("nvmlDeviceGetMemoryInfo", NvmlCode.NO_PERMISSION),
        ("nvmlDeviceGetName", 999),
        ("nvmlDeviceGetGpuFabricInfoV", 999),
        ("nvmlDeviceGetMinorNumber", NvmlCode.NOT_SUPPORTED),
        ("nvmlDeviceGetCudaComputeCapability", 999),
    ],
)
def test_a_call_that_fails_is_no_lost_gpu(machine, fake, symbol, code):
    """A container without permission, an odd driver: the value is unknown, the GPU is served."""
    for gpu in fake.gpus:
        gpu.errors[symbol] = code
    reading = machine.read()
    assert [gpu.fault for gpu in reading.gpus] == [None] * 8
    is_ordinary = code == NvmlCode.NOT_SUPPORTED
    assert any(symbol in note for note in reading.notes) is not is_ordinary
    assert machine.faults() == {}


def test_each_call_may_be_missing(fake, tmp_path):
    """An old driver: whatever one symbol is missing, the reading comes, with every GPU."""
    vital = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"}
    vital |= {"nvmlDeviceGetHandleByIndex_v2"}
    with reader_on(fake, tmp_path / "none") as machine:
        machine.read()
    for symbol in sorted(set(fake.calls) - vital):
        old = fake_of(load_recording("dgx-h100"))
        old.missing.add(symbol)
        with reader_on(old, tmp_path) as machine:
            reading = machine.read()
        assert [gpu.fault for gpu in reading.gpus] == [None] * 8, symbol
        assert reading.topology.n_gpus == 8


def test_a_gpu_lost_from_the_start_is_noted(machine, fake):
    """It has no uuid, so it cannot be listed; the others are."""
    fake.gpus[3].handle_error = LOST
    reading = machine.read()
    assert [gpu.index for gpu in reading.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert any(note.startswith("GPU 3 is not listed") for note in reading.notes)
    fake.gpus[3].handle_error = None
    assert [gpu.index for gpu in machine.read().gpus] == list(range(8))


def test_a_gpu_that_is_at_fault_from_the_start_is_listed(machine, fake):
    """With what was read until it failed."""
    fake.gpus[3].errors["nvmlDeviceGetMemoryInfo"] = LOST
    gpu = machine.read().gpus[3]
    assert gpu.fault == "NVML: GPU is lost"
    assert (gpu.nodes, gpu.gpu.memory_mib) == (("/dev/nvidia3",), None)
    assert list(machine.faults()) == [uuid_of(3)]


def test_a_poll_before_the_first_reading_reads(machine, fake):
    """Whoever polls first gets an answer, too."""
    fake.gpus[3].error = LOST
    fake.gpus[3].known_by_heart = frozenset({"nvmlDeviceGetUUID"})
    assert list(machine.faults()) == [uuid_of(3)]


def test_a_gpu_that_is_counted_no_more_stays(machine, fake):
    """After a new driver start the lost one is not there; the others keep their places."""
    whole = machine.read()
    lost = fake.gpus.pop(3)
    reading = machine.read()
    assert_only_lost(reading, 3)
    assert [gpu.index for gpu in reading.gpus] == [0, 1, 2, 3, 3, 4, 5, 6]
    assert machine.faults() == {uuid_of(3): reading.gpus[3].fault}
    fake.gpus.insert(3, lost)
    assert machine.faults() == {}
    assert machine.read().topology == whole.topology


def test_a_pair_that_fails_costs_only_the_pair(machine, fake):
    """The kernel's tree or nothing stands for it; the next reading retries."""
    for gpu in fake.gpus[:2]:
        gpu.errors[ANCESTOR] = 999
    assert machine.read().topology.pcie[0][1] is PcieLevel.UNKNOWN
    fake.gpus[0].errors.clear()
    fake.gpus[1].errors.clear()
    assert machine.read().topology.pcie == load_recording("dgx-h100").pcie


def test_pairs_that_nvml_has_no_answer_for_are_read_once(machine, fake):
    """NOT_SUPPORTED does not change while the driver runs."""
    fake.ancestors.clear()
    machine.read()
    before = fake.calls[ANCESTOR]
    machine.read()
    assert fake.calls[ANCESTOR] == before


# --- GPUs that hang ---


def test_a_poll_under_way_is_no_reason_to_restart(machine, fake):
    """Only a call past its limit is."""
    machine.read()
    reasons = []
    fake.gpus[3].answer = lambda _: reasons.append(machine.condition().restart_reason)
    assert machine.faults() == {}
    assert set(reasons) == {""}


@contextmanager
def hanging(machine, gpu, *symbols):
    """Let calls of a GPU hang meanwhile, which are late then; all have returned in the end."""
    with machine.hang() as hang:
        gpu.hangs, gpu.hanging = hang, frozenset(symbols)
        yield
        gpu.hangs = None


def stuck():
    """The threads that call NVML now."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("nvml ")]


def names_of_the_stuck(*hanging_keys):
    """Their names, when all others are gone: a thread outlives its call for a moment."""
    for thread in stuck():
        if thread.name.removeprefix("nvml ") not in hanging_keys:
            thread.join(60)
    return [thread.name for thread in stuck()]


def test_one_gpu_that_hangs_leaves_the_others(machine, fake):
    """It is at fault alone, whatever is read; it costs one thread, and comes back."""
    whole = machine.read()
    machine.wait(0)
    with hanging(machine, fake.gpus[3]):
        assert machine.faults() == {uuid_of(3): NO_ANSWER}
        assert machine.faults() == {uuid_of(3): NO_ANSWER}
        assert_only_lost(machine.read(), 3)
        assert names_of_the_stuck(uuid_of(3)) == [f"nvml {uuid_of(3)}"]
        assert machine.condition().restart_reason == f"{NO_ANSWER} ({uuid_of(3)})"
        assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
        fake.happen(5, 79)
        assert machine.wait(60) == (xid_event(uuid_of(5), 79),)
    assert machine.faults() == {}
    assert machine.condition().restart_reason == ""
    assert machine.read() == whole


def test_a_gpu_that_hangs_when_it_is_read(machine, fake):
    """The others are read; it keeps what was read before."""
    machine.read()
    with hanging(machine, fake.gpus[3], "nvmlDeviceGetName"):
        assert_only_lost(machine.read(), 3)
        assert machine.faults() == {uuid_of(3): NO_ANSWER}


def test_a_gpu_that_hangs_from_the_start_is_noted(machine, fake):
    """The others are served; a new process would hang as well, so none is wanted."""
    with hanging(machine, fake.gpus[3]):
        reading = machine.read()
        assert [gpu.index for gpu in reading.gpus] == [0, 1, 2, 4, 5, 6, 7]
        note = f"GPU 3 is not listed, as its uuid cannot be read: {NO_ANSWER}"
        assert note in reading.notes
        assert machine.faults() == {}
        assert machine.condition().restart_reason == ""
    assert [gpu.index for gpu in machine.read().gpus] == list(range(8))


def test_a_gpu_that_hangs_when_it_is_registered(machine, fake):
    """Events of the others arrive."""
    machine.read()
    with hanging(machine, fake.gpus[3], "nvmlDeviceGetSupportedEventTypes"):
        assert machine.wait(0) == ()
        assert machine.condition().without_events == {uuid_of(3)}
        fake.happen(5, 79)
        assert machine.wait(60) == (xid_event(uuid_of(5), 79),)
    assert machine.wait(60) == (GpuEvent(EventKind.LOST_EVENTS),)
    assert machine.condition().without_events == frozenset()
    assert len(fake.sets) == 1


def test_gpus_that_are_all_late_when_they_are_registered(machine, fake):
    """A driver that is slow once must not cost a node its events for good."""
    machine.read()
    symbol = "nvmlDeviceGetSupportedEventTypes"
    with ExitStack() as late:
        for gpu in fake.gpus:
            late.enter_context(hanging(machine, gpu, symbol))
        assert machine.wait(0) == ()
        assert len(machine.condition().without_events) == 8
    assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
    assert machine.condition().without_events == frozenset()
    fake.happen(5, 79)
    assert machine.wait(60) == (xid_event(uuid_of(5), 79),)


def test_a_pair_that_hangs_is_unknown(machine, fake):
    """No GPU is at fault: each answers."""
    with hanging(machine, fake.gpus[3], ANCESTOR):
        reading = machine.read()
        assert [gpu.fault for gpu in reading.gpus] == [None] * 8
        assert reading.topology.pcie[3][4] is PcieLevel.UNKNOWN
        assert machine.faults() == {}
    assert machine.read().topology.pcie == load_recording("dgx-h100").pcie


def test_the_library_is_not_closed_under_a_call_that_hangs(machine, fake):
    """A driver that was loaded again meanwhile is opened when the call has returned."""
    machine.read()
    with hanging(machine, fake.gpus[3]):
        machine.faults()
        fake.is_loaded = False
        assert set(machine.faults()) == {uuid_of(i) for i in range(8)}
        assert fake.calls["nvmlShutdown"] == 0
    fake.is_loaded = True
    fake.reload()
    assert machine.faults() == {}


@pytest.mark.parametrize("symbol", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_a_library_that_hangs_is_an_error(machine, fake, symbol):
    """Nothing can be read, and no caller waits for it for ever."""
    with machine.hang() as hang:
        fake.after[symbol] = hang.wait
        with pytest.raises(NvmlError, match=NO_ANSWER):
            machine.read()
        del fake.after[symbol]
    assert len(machine.read().gpus) == 8
    assert fake.n_opened == 1  # NVML counts how often it was opened, and closes after as many


# --- the driver ---


def test_no_driver_is_an_error_each_time():
    """A retry gets the same answer, and no half-open library."""
    with installed(None):
        machine = NvmlMachine()
        for call in (machine.read, machine.faults):
            with pytest.raises(NvmlError, match="libnvidia-ml"):
                call()
        machine.close()


def test_a_driver_without_gpus(tmp_path, fake):
    """Nothing to be read at all."""
    fake.gpus.clear()
    with (
        reader_on(fake, tmp_path) as machine,
        pytest.raises(ReadingError, match="NVML counts none"),
    ):
        machine.read()


def test_gpus_that_all_fail_from_the_start(machine, fake, check_message):
    """The reason is NVML's."""
    for gpu in fake.gpus:
        gpu.handle_error = LOST
    with pytest.raises(ReadingError) as caught:
        machine.read()
    check_message(caught.value)


def test_a_driver_that_is_loaded_again(machine, fake):
    """The library is opened again, and handles are fetched again."""
    whole = machine.read()
    fake.reload()
    assert machine.faults() == {}
    fake.reload()
    assert machine.read() == whole


def test_what_an_earlier_driver_said_is_forgotten(machine, fake):
    """Pairs and far ends are read again after a driver was loaded again."""
    machine.read()
    fake.reload()
    fake.ancestors = dict.fromkeys(fake.ancestors, 20)
    assert machine.read().topology.pcie[0][7] is PcieLevel.PXB


def test_a_poll_blames_no_gpu_for_the_driver(machine, fake):
    """The lost GPU is looked for, and the library has no driver: all of them have none."""
    machine.read()
    fake.gpus[3].error = LOST
    fake.errors["nvmlDeviceGetHandleByUUID"] = NvmlCode.UNINITIALIZED
    assert set(machine.faults()) == {uuid_of(i) for i in range(8)}


def test_a_driver_that_was_unloaded(machine, fake):
    """Every GPU is at fault while it is gone, and well when it is back."""
    machine.read()
    fake.is_loaded = False
    assert set(machine.faults()) == {uuid_of(i) for i in range(8)}
    with pytest.raises(NvmlError) as caught:
        machine.read()
    assert caught.value.code == NvmlCode.DRIVER_NOT_LOADED
    fake.is_loaded = True
    assert machine.faults() == {}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(18, "NVML: RM has detected an NVML/RM version mismatch.", id="new driver"),
        pytest.param(999, "NVML: Unknown Error", id="control group without device nodes"),
        pytest.param(NvmlCode.DRIVER_NOT_LOADED, "", id="a driver that is loaded later"),
    ],
)
def test_a_library_that_only_a_new_container_has(machine, fake, code, reason):
    """A restart is wanted for as long as the library cannot be opened for such a reason."""
    machine.read()
    fake.reload()
    fake.errors["nvmlInitWithFlags"] = code
    assert len(machine.faults()) == 8
    assert machine.condition().restart_reason == reason
    fake.errors.clear()
    assert machine.faults() == {}
    assert machine.condition().restart_reason == ""


def test_all_gpus_with_an_unknown_error_need_a_new_container(machine, fake):
    """One alone has a fault of its own."""
    machine.read()
    for gpu in fake.gpus[1:]:
        gpu.error = 999
    machine.faults()
    assert machine.condition().restart_reason == ""
    fake.gpus[0].error = 999
    machine.faults()
    assert machine.condition().restart_reason == "NVML: Unknown Error"
    fake.gpus[0].error = None
    machine.faults()
    assert machine.condition().restart_reason == ""


def test_no_reading_ends_the_need_of_a_new_container(machine, fake):
    """A restart follows five minutes of it unbroken, and the machine is read every five minutes."""
    machine.read()
    for gpu in fake.gpus:
        gpu.error = gpu.handle_error = 999
    machine.read()
    reasons = []
    fake.gpus[0].answer = lambda _: reasons.append(machine.condition().restart_reason)
    machine.faults()
    machine.read()
    assert {*reasons, machine.condition().restart_reason} == {"NVML: Unknown Error"}
    fake.gpus[0].error = fake.gpus[0].handle_error = None
    machine.read()
    assert machine.condition().restart_reason == ""


def test_an_unknown_error_of_all_gpus_ends_with_the_driver(machine, fake):
    """A driver that is not loaded needs no new container."""
    machine.read()
    for gpu in fake.gpus:
        gpu.error = 999
    machine.faults()
    fake.is_loaded = False
    machine.faults()
    assert machine.condition().restart_reason == ""


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID"])
def test_a_driver_that_goes_while_it_is_read(machine, fake, symbol):
    """The error is about the driver, whichever call meets it: no GPU is blamed."""
    fake.errors[symbol] = NvmlCode.UNINITIALIZED
    with pytest.raises(NvmlError, match="Uninitialized"):
        machine.read()


def test_answers_that_contradict_each_other(machine, fake, check_message):
    """Two GPUs of one uuid make no machine."""
    fake.gpus[1].uuid = ""
    with pytest.raises(ReadingError) as caught:
        machine.read()
    check_message(caught.value)


def test_a_closed_machine_says_so(fake, tmp_path):
    """No call may be made after the end; ending twice is no harm."""
    with reader_on(fake, tmp_path) as machine:
        machine.read()
        machine.close()
        assert fake.n_opened == 0
        with pytest.raises(ReadingError, match="closed"):
            machine.read()
        assert machine.wait(60) == ()


# --- events ---


def test_events_that_came_together_are_returned_together(machine, fake):
    """In their order, MIG instances named, ECC without a number."""
    machine.read()
    machine.wait(0)
    fake.happen(0, 94, gi=7, ci=0)
    fake.happen(1, 0, kind=EventBit.DOUBLE_BIT_ECC)
    fake.happen(2, 0, kind=EventBit.MIG_CONFIG)
    assert machine.wait(60) == (
        xid_event(uuid_of(0), 94, (7, 0)),
        GpuEvent(EventKind.ECC, uuid_of(1)),
        GpuEvent(EventKind.LOST_EVENTS, uuid_of(2)),
    )


@pytest.mark.parametrize(("gi", "ci"), [(7, ANY_INSTANCE), (ANY_INSTANCE, 0)])
def test_half_an_address_is_the_gpu(machine, fake, gi, ci):
    """NVIDIA's plugin too names a MIG device by both instances only."""
    machine.read()
    machine.wait(0)
    fake.happen(0, 48, gi=gi, ci=ci)
    assert machine.wait(60) == (xid_event(uuid_of(0), 48),)


def test_a_storm_is_cut(machine, fake):
    """Whoever waits gets away, and the rest the next time."""
    machine.read()
    machine.wait(0)
    for _ in range(300):
        fake.happen(0, 63)
    assert [len(machine.wait(0)), len(machine.wait(0))] == [256, 44]


def test_close_ends_a_wait(fake, tmp_path):
    """A pod's end must not wait for a timeout, only for a slice of it."""
    with reader_on(fake, tmp_path, slice_s=0.05) as machine:
        machine.read()
        results = []
        thread = threading.Thread(target=lambda: results.append(machine.wait(3600)))
        thread.start()
        assert fake.is_waiting.wait(60)
        machine.close()
        thread.join(60)
        assert not thread.is_alive()
    assert results == [()]
    assert fake.sets == {}


@pytest.mark.parametrize(
    "missing",
    ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"],
)
def test_without_events_it_only_waits(fake, tmp_path, missing):
    """Polling finds the faults; the wait still ends with `close`."""
    fake.missing.add(missing)
    with reader_on(fake, tmp_path) as machine:
        assert machine.wait(0) == ()
        machine.read()
        assert machine.wait(0) == ()
        results = []
        thread = threading.Thread(target=lambda: results.append(machine.wait(3600)))
        thread.start()
        machine.close()
        thread.join(60)
    assert results == [()]
    assert fake.calls["nvmlEventSetWait_v2"] == 0


def test_xids_are_registered_alone_where_other_kinds_are_refused(machine, fake):
    """NVML registers all kinds of a call or none; without XIDs a GPU is polled only."""
    fake.gpus[0].refused_events = EventBit.MIG_CONFIG
    fake.gpus[1].refused_events = EventBit.XID
    fake.gpus[2].supported_events = EventBit.DOUBLE_BIT_ECC
    fake.gpus[3].supported_events = EventBit.DOUBLE_BIT_ECC
    fake.gpus[3].refused_events = EventBit.DOUBLE_BIT_ECC
    machine.read()
    assert machine.condition().without_events == frozenset()
    machine.wait(0)
    assert machine.condition().without_events == {uuid_of(1), uuid_of(2), uuid_of(3)}
    fake.happen(0, 48)
    fake.happen(1, 48)
    assert machine.wait(60) == (xid_event(uuid_of(0), 48),)


@pytest.mark.parametrize(
    ("address", "uuid"),
    [
        pytest.param(0x7777, uuid_of(5), id="another handle of the same GPU"),
        pytest.param(0, None, id="no handle"),
    ],
)
def test_the_gpu_of_an_event_is_found_by_its_uuid(machine, fake, address, uuid):
    """Handles need not be equal: an event of an unknown GPU would mark all eight."""
    machine.read()
    machine.wait(0)
    fake.gpus[5].event_address = address
    fake.happen(5, 79)
    assert machine.wait(60) == (xid_event(uuid, 79),)


def test_an_event_of_a_gpu_that_has_no_uuid(machine, fake):
    """Then it may be any."""
    machine.read()
    machine.wait(0)
    fake.gpus[5].event_address = 0x7777
    fake.gpus[5].errors["nvmlDeviceGetUUID"] = LOST
    fake.happen(5, 79)
    assert machine.wait(60) == (xid_event(None, 79),)


def test_gpus_that_are_all_deaf_are_not_waited_for(machine, fake):
    """An event set that nothing arrives at would make NVML say so at once, again and again."""
    for gpu in fake.gpus:
        gpu.supported_events = EventBit.DOUBLE_BIT_ECC
    machine.read()
    assert machine.wait(0) == ()
    assert fake.calls["nvmlEventSetWait_v2"] == 0
    assert fake.sets == {}


def test_a_set_in_use_is_not_freed_under_the_wait(machine, fake):
    """The library is opened again only when the wait under way has ended."""
    machine.read()
    machine.wait(0)
    events: list[GpuEvent] = []

    def listen():
        while not events:
            events.extend(machine.wait(0.1))

    thread = threading.Thread(target=listen)
    thread.start()
    assert fake.is_waiting.wait(60)
    fake.reload()
    machine.read()
    thread.join(60)
    assert events == [GpuEvent(EventKind.LOST_EVENTS)]
    fake.happen(0, 79)
    assert machine.wait(60) == (xid_event(uuid_of(0), 79),)


@pytest.mark.parametrize("code", [LOST, 999])
def test_a_wait_that_fails_is_lost_events_later(fake, tmp_path, code):
    """The set is freed; after a pause another is made, and everything has to be looked at."""
    now = [1000.0]
    with reader_on(fake, tmp_path, clock=lambda: now[0]) as machine:
        machine.read()
        machine.wait(0)
        fake.fail_waits(code)
        assert [machine.wait(0) for _ in range(2)] == [(), ()]
        assert fake.sets == {}
        n_waits = fake.calls["nvmlEventSetWait_v2"]
        assert machine.wait(0) == ()
        assert fake.calls["nvmlEventSetWait_v2"] == n_waits
        fake.fail_waits(None)
        now[0] += 1
        assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
        fake.happen(0, 79)
        assert machine.wait(0) == (xid_event(uuid_of(0), 79),)


def test_the_pause_grows_while_waits_fail(fake, tmp_path):
    """Each failure makes whoever waits read everything, so it must not go on every second."""
    now = [1000.0]
    with reader_on(fake, tmp_path, clock=lambda: now[0]) as machine:
        machine.read()
        fake.fail_waits(LOST)
        machine.wait(0)
        n_events = 0
        for _ in range(600):
            now[0] += 1
            n_events += len(machine.wait(0))
        assert 10 <= n_events <= 20


def test_events_of_a_gpu_that_comes_back_are_seen_again(machine, fake):
    """Other GPUs than before: a new set, and one LOST_EVENTS for what was missed."""
    machine.read()
    machine.wait(0)
    fake.gpus[3].handle_error = LOST
    machine.read()
    assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
    fake.gpus[3].handle_error = None
    assert machine.faults() == {}
    assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
    fake.happen(3, 79)
    assert machine.wait(0) == (xid_event(uuid_of(3), 79),)
    assert len(fake.sets) == 1


def at_fault_when_read_first(machine, gpu):
    """The plugin starts meanwhile."""
    gpu.error = NvmlCode.RESET_REQUIRED
    machine.read()
    machine.wait(0)


def at_fault_at_a_poll_only(machine, gpu):
    """It is well again before the machine is read."""
    machine.read()
    gpu.error = NvmlCode.RESET_REQUIRED
    machine.faults()
    machine.wait(0)


@pytest.mark.parametrize("begin", [at_fault_when_read_first, at_fault_at_a_poll_only])
def test_a_gpu_at_fault_when_it_was_registered_is_registered_again(machine, fake, begin):
    """Its handle is the same as before, so nothing else makes a new set."""
    fake.gpus[3].known_by_heart = BY_HEART
    begin(machine, fake.gpus[3])
    assert machine.condition().without_events == {uuid_of(3)}
    fake.gpus[3].error = None
    assert machine.faults() == {}
    machine.read()
    assert machine.wait(0) == (GpuEvent(EventKind.LOST_EVENTS),)
    assert machine.condition().without_events == frozenset()
    fake.happen(3, 79)
    assert machine.wait(0) == (xid_event(uuid_of(3), 79),)


def test_a_gpu_that_supports_no_events_is_registered_again_once(machine, fake):
    """Each new set makes whoever waits read everything."""
    fake.gpus[3].supported_events, fake.gpus[3].known_by_heart = 0, BY_HEART
    at_fault_when_read_first(machine, fake.gpus[3])
    fake.gpus[3].error = None
    events = [machine.wait(0) for _ in range(3) if machine.read()]
    assert events == [(GpuEvent(EventKind.LOST_EVENTS),), (), ()]
    assert machine.condition().without_events == {uuid_of(3)}


def test_an_error_after_an_event_waits_for_its_turn(machine, fake):
    """An event is not lost because the next call fails."""
    machine.read()
    machine.wait(0)
    fake.happen(0, 79)
    fake.after["nvmlEventSetWait_v2"] = lambda: fake.fail_waits(999)
    assert machine.wait(60) == (xid_event(uuid_of(0), 79),)
    n_waits = fake.calls["nvmlEventSetWait_v2"]
    assert machine.wait(0) == ()
    assert fake.calls["nvmlEventSetWait_v2"] == n_waits  # the set that failed is not used again
    assert fake.sets == {}


def test_close_does_not_wait_for_a_call_that_hangs(fake, tmp_path):
    """A broken GPU can hold a call of NVML for minutes; the pod has to end all the same."""
    with reader_on(fake, tmp_path, close_s=0.0) as machine:
        machine.read()
        is_held, may_go = threading.Event(), threading.Event()

        def hang():
            is_held.set()
            may_go.wait(60)

        fake.after["nvmlDeviceGetMinorNumber"] = hang
        thread = threading.Thread(target=machine.read)
        thread.start()
        assert is_held.wait(60)
        machine.close()
        assert fake.n_opened == 1
        may_go.set()
        thread.join(60)
    assert fake.n_opened == 0


def test_readings_and_waits_from_two_threads(machine, fake):
    """A reader never holds a waiter's lock, nor the other way round."""
    machine.read()
    machine.wait(0)
    events = []
    thread = threading.Thread(target=lambda: events.extend(machine.wait(60)))
    thread.start()
    assert fake.is_waiting.wait(60)
    for _ in range(3):
        machine.read()
        machine.faults()
    fake.happen(1, 79)
    thread.join(60)
    assert events == [xid_event(uuid_of(1), 79)]
