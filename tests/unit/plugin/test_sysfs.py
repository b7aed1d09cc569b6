"""What the kernel's files say."""

from __future__ import annotations

import pytest

from plugin.sysfs import Sysfs
from tests.fake_sysfs import FakeSysfs
from topology.importers.xml.pcie_tree import PciPlace
from topology.model import CpuPlatform

ROOT_PORT, UPSTREAM, DOWNSTREAM = "0000:3a:00.0", "0000:3b:00.0", "0000:3c:04.0"
GPU = "0000:3d:00.0"
QEMU = ("0x1b36", "0x000c")
SAPPHIRE_RAPIDS = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480C

processor\t: 1
model\t\t: 1
"""


@pytest.fixture
def fake(tmp_path):
    """A machine without anything."""
    return FakeSysfs(tmp_path)


def test_a_place_is_the_path_below_the_root_bus(fake):
    """Every bridge of the path counts, root port first."""
    fake.device("pci0000:3a", ROOT_PORT, UPSTREAM, DOWNSTREAM, GPU, numa=1)
    assert fake.reader.place(GPU) == PciPlace("pci0000:3a", (ROOT_PORT, UPSTREAM, DOWNSTREAM), 1)
    assert fake.reader.numa_node(GPU) == 1
    assert fake.reader.pci_class(GPU) == "0x030200"


def test_a_machine_without_sysfs_reports_nothing(fake):
    """Whatever is missing is unknown, and nothing fails."""
    reader = fake.reader
    assert (reader.place(GPU), reader.numa_node(GPU), reader.pci_class(GPU)) == (None, None, None)
    assert (reader.nics(), reader.numa_distances()) == ((), ())
    assert reader.cpu() is CpuPlatform.UNKNOWN


def test_numa_minus_one_is_unknown(fake):
    """-1 is the kernel's word for a firmware that does not report it."""
    fake.device("pci0000:3a", ROOT_PORT, GPU, numa=-1)
    place = fake.reader.place(GPU)
    assert fake.reader.numa_node(GPU) is None
    assert place is not None
    assert place.numa_node is None


@pytest.mark.parametrize(
    ("path", "ids", "is_hidden"),
    [
        pytest.param([GPU], QEMU, True, id="on the root bus"),
        pytest.param([ROOT_PORT, GPU], QEMU, True, id="behind an emulated root port"),
        pytest.param([ROOT_PORT, GPU], ("0x8086", "0x2030"), False, id="behind a real root port"),
        pytest.param(
            [ROOT_PORT, UPSTREAM, DOWNSTREAM, GPU],
            ("0x104c", "0x8232"),
            False,
            id="x3130 on purpose",
        ),
    ],
)
def test_what_a_hypervisor_placed_is_hidden(fake, path, ids, is_hidden):
    """A guest's PCIe tree says nothing of the machine, unless it was configured on purpose."""
    fake.device("pci0000:00", *path, bridge_ids=ids)
    place = fake.reader.place(GPU)
    assert place is not None
    assert place.is_hidden is is_hidden


def test_a_root_bus_below_a_device_is_the_root(fake):
    """Intel's VMD is a device that is a root bus; what is above it is not above its devices."""
    fake.device("pci0000:64/0000:64:00.5/pci10000:00", "10000:00:02.0", "10000:01:00.0", numa=0)
    place = fake.reader.place("10000:01:00.0")
    assert place == PciPlace("pci10000:00", ("10000:00:02.0",), 0)


def test_a_root_bus_below_something_else(fake):
    """Azure gives each GPU a PCI domain below the VMBus."""
    fake.device("LNXSYSTM:00/VMBUS:00/4c05e1a2/pci0001:00", "0001:00:00.0", numa=0)
    place = fake.reader.place("0001:00:00.0")
    assert place == PciPlace("pci0001:00", (), 0, is_hidden=True)


def test_domains_of_more_than_four_digits(fake):
    """The kernel writes five digits where NVML writes eight."""
    fake.device("pci10000:00", "10000:00:02.0", "10000:01:00.0")
    assert fake.reader.place("00010000:01:00.0") is not None


def test_a_path_without_root_bus_is_no_place(fake):
    """A link into something else is unknown, not a device of a nameless root."""
    fake.device("platform", GPU)
    assert fake.reader.place(GPU) is None


def test_nics_come_rdma_first_in_natural_order(fake):
    """mlx5_10 after mlx5_2, ports of the same function once, software never."""
    devices = [fake.device("pci0000:3a", ROOT_PORT, f"0000:{bus:02x}:00.0") for bus in range(1, 5)]
    fake.port("infiniband", "mlx5_10", devices[0])
    fake.port("infiniband", "mlx5_2", devices[1])
    fake.port("net", "ib0", devices[0])
    fake.port("net", "eth0", devices[2])
    fake.port("net", "eth1", devices[2])
    fake.port("net", "mlx5_2", devices[3])
    fake.port("net", "lo", None)
    assert [(nic.name, nic.bus_id, nic.is_rdma) for nic in fake.reader.nics()] == [
        ("mlx5_2", "0000:02:00.0", True),
        ("mlx5_10", "0000:01:00.0", True),
        ("eth0", "0000:03:00.0", False),
    ]


ACTIVE = "4: ACTIVE"
RATES = [
    ("one active port", [(ACTIVE, "400 Gb/sec (4X NDR)")], 400),
    ("a rate with a fraction", [(ACTIVE, "2.5 Gb/sec (1X SDR)")], 2.5),
    ("an EFA port", [(ACTIVE, "100 Gb/sec (4X EDR)")], 100),
    ("the slowest of two", [(ACTIVE, "100 Gb/sec (4X EDR)"), (ACTIVE, "40 Gb/sec (4X QDR)")], 40),
    ("a port that is down", [("1: DOWN", "10 Gb/sec (4X SDR)")], None),
    ("a port that is coming up", [("2: INIT", "400 Gb/sec (4X NDR)")], None),
    ("one of two down", [("1: DOWN", "10 Gb/sec (4X SDR)"), (ACTIVE, "200 Gb/sec (4X HDR)")], 200),
    ("no state", [(None, "400 Gb/sec (4X NDR)")], None),
    ("no rate", [(ACTIVE, None)], None),
    ("no number", [(ACTIVE, "fast")], None),
    ("nothing", [(ACTIVE, "0 Gb/sec (4X SDR)")], None),
    ("more than any NIC", [(ACTIVE, "200000 Gb/sec (4X NDR)")], None),
    ("no ports", [], None),
]


@pytest.mark.parametrize(("links", "expected"), [r[1:] for r in RATES], ids=[r[0] for r in RATES])
def test_the_rate_is_that_of_the_slowest_active_port(fake, links, expected):
    """A link that is down carries nothing, whatever rate its file shows: unknown, never zero."""
    fake.port("infiniband", "mlx5_0", fake.device("pci0000:3a", ROOT_PORT, GPU), *links)
    assert [nic.gbit_per_s for nic in fake.reader.nics()] == [expected]


def test_a_socket_port_has_no_rate(fake):
    """Only what a group's traffic uses is read."""
    fake.port("net", "eth0", fake.device("pci0000:3a", ROOT_PORT, GPU))
    assert [nic.gbit_per_s for nic in fake.reader.nics()] == [None]


def test_without_the_rdma_class_rdma_is_unknown(fake):
    """A kernel that shows no RDMA class may have a driver that is not loaded: unknown."""
    fake.port("net", "eth0", fake.device("pci0000:3a", ROOT_PORT, GPU))
    assert [nic.is_rdma for nic in fake.reader.nics()] == [None]


def test_virtual_functions_are_left_out(fake):
    """Hundreds of them belong to pods, not to the machine."""
    device = fake.device("pci0000:3a", ROOT_PORT, GPU)
    (device / "physfn").mkdir()
    fake.port("infiniband", "mlx5_0", device)
    assert fake.reader.nics() == ()


def test_ports_of_other_buses_are_left_out(fake):
    """A USB or virtio port has no PCI place of its own."""
    device = fake.root / "sys/devices/pci0000:00/0000:00:14.0/usb1"
    device.mkdir(parents=True)
    fake.port("net", "usb0", device)
    assert fake.reader.nics() == ()


def test_numa_distances(fake):
    """The kernel's rows by node; what is no row is left out."""
    fake.numa({1: "21 10", 0: "10 21", 2: "far away"})
    assert fake.reader.numa_distances() == ((0, (10, 21)), (1, (21, 10)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SAPPHIRE_RAPIDS, CpuPlatform.INTEL_SPR),
        ("vendor_id : AuthenticAMD\npower management:\n\nprocessor : 1\n", CpuPlatform.AMD),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", CpuPlatform.ARM),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", CpuPlatform.POWER9),
        ("vendor_id : GenuineIntel\ncpu family : six\nmodel : many\n", CpuPlatform.UNKNOWN),
    ],
)
def test_processors(fake, text, expected):
    """NCCL's classes, from the first processor."""
    fake.cpuinfo(text)
    assert fake.reader.cpu() is expected


def test_the_default_is_this_machine():
    """/sys and /proc need not be named."""
    assert (str(Sysfs().sys), str(Sysfs().proc)) == ("/sys", "/proc")


def test_a_loop_of_links_is_no_device(fake):
    """A broken tree must not take the reading down."""
    folder = fake.root / "sys/bus/pci/devices"
    folder.mkdir(parents=True)
    (folder / GPU).symlink_to(GPU)
    assert fake.reader.place(GPU) is None
