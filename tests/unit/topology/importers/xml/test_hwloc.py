"""hwloc XML, in small machines written for these tests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.machines import pairs
from topology.errors import ImportFormatError
from topology.importers.xml.hwloc import import_hwloc_xml
from topology.model import MAX_GPUS, NO_LINK, UNKNOWN_LINK, AcceleratorLink, CpuPlatform, LinkKind


def infos(**values):
    """<info> elements."""
    return "".join(f'<info name="{name}" value="{value}"/>' for name, value in values.items())


def os_device(name, kind, gp=None, **values):
    """An OS device; kinds of version 2: 1 GPU, 2 network, 3 OpenFabrics, 5 co-processor."""
    index = "" if gp is None else f'gp_index="{gp}"'
    return (
        f'<object type="OSDev" name="{name}" osdev_type="{kind}" {index}>{infos(**values)}</object>'
    )


def pci(bus, ids, *inside):
    """A PCI device; `ids` as in pci_type, such as "0302 [10de:2330] [10de:16c1] a1"."""
    return f'<object type="PCIDev" pci_busid="{bus}" pci_type="{ids}">{"".join(inside)}</object>'


def bridge(bus, *inside):
    """A PCI-to-PCI bridge."""
    return f'<object type="Bridge" bridge_type="1-1" pci_busid="{bus}">{"".join(inside)}</object>'


def host(*inside):
    """A host bridge."""
    return f'<object type="Bridge" bridge_type="0-1">{"".join(inside)}</object>'


def package(nodeset, *inside, **values):
    """A package with its NUMA node."""
    content = "".join(inside)
    return f'<object type="Package" nodeset="{nodeset}">{infos(**values)}{content}</object>'


def machine(*inside: str, version: str | None = "2.0", after: str = "") -> str:
    """A whole document."""
    number = "" if version is None else f'version="{version}"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        f'<topology {number}><object type="Machine" nodeset="0x00000003">{"".join(inside)}</object>'
        f"{after}</topology>"
    )


H100 = "0302 [10de:2330] [10de:16c1] a1"
SPR = {"CPUVendor": "GenuineIntel", "CPUFamilyNumber": "6", "CPUModelNumber": "143"}


def nvidia(bus, index, *, ids=H100, model="NVIDIA H100 80GB HBM3"):
    """A GPU with the OS devices that CUDA, OpenCL and NVML make of it."""
    return pci(
        bus,
        ids,
        os_device(f"opencl0d{index}", 5, OpenCLDeviceType="GPU", GPUModel="short name"),
        os_device(f"cuda{index}", 5, GPUModel=model),
        os_device(f"nvml{index}", 1, GPUModel=model, NVIDIAUUID=f"GPU-{index}"),
    )


SERVER = machine(
    package(
        "0x1",
        host(
            bridge(
                "0000:00:01.0",
                bridge(
                    "0000:01:00.0",
                    bridge("0000:02:00.0", nvidia("0000:03:00.0", 1)),
                    bridge("0000:02:01.0", nvidia("0000:04:00.0", 0)),
                    bridge(
                        "0000:02:02.0",
                        pci(
                            "0000:05:00.0",
                            "0207 [15b3:1021] [15b3:0023] 00",
                            os_device("ib0", 2),
                            os_device("mlx5_0", 3),
                        ),
                    ),
                ),
            ),
            bridge("0000:00:02.0", nvidia("0000:06:00.0", 2)),
            bridge("0000:00:1c.0", pci("0000:07:00.0", "0200 [8086:1521]", os_device("eno1", 2))),
            pci("0000:00:1f.0", "0300 [1a03:2000]", os_device("card0", 1)),
        ),
        **SPR,
    ),
    package("0x0,0x00000002", host(bridge("0000:80:01.0", nvidia("0000:81:00.0", 3))), **SPR),
)


class TestServer:
    topology = import_hwloc_xml(SERVER)

    def test_levels_follow_the_tree_in_the_order_of_nvml(self):
        """Two ports of a switch, two root ports of a host bridge, two sockets."""
        assert [gpu.pci_bus_id for gpu in self.topology.gpus] == [
            "0000:04:00.0",
            "0000:03:00.0",
            "0000:06:00.0",
            "0000:81:00.0",
        ]
        levels = [level.value for level in pairs(self.topology.pcie)]
        assert levels == ["PIX", "PHB", "SYS", "PHB", "SYS", "SYS"]

    def test_gpus_carry_what_the_file_says(self):
        """NVML's name and UUID; the NUMA node is the package's."""
        gpu = self.topology.gpus[0]
        assert (gpu.uuid, gpu.model) == ("GPU-0", "NVIDIA H100 80GB HBM3")
        assert [gpu.numa_node for gpu in self.topology.gpus] == [0, 0, 0, 1]
        assert self.topology.cpu is CpuPlatform.INTEL_SPR

    def test_links_are_unknown_without_a_matrix(self):
        """A build without NVML support says nothing about NVLink."""
        assert set(pairs(self.topology.links)) == {UNKNOWN_LINK}

    def test_nics_take_the_rdma_name(self):
        """One NIC per function; a file that shows RDMA devices shows all of them."""
        rdma, other = self.topology.nics
        assert (rdma.name, rdma.is_rdma, rdma.numa_node) == ("mlx5_0", True, 0)
        assert [level.value for level in rdma.levels] == ["PIX", "PIX", "PHB", "SYS"]
        assert (other.name, other.is_rdma) == ("eno1", False)


def test_without_any_rdma_device_rdma_is_unknown():
    """Slingshot NICs have no verbs device, so silence is no evidence."""
    nics = import_hwloc_xml(
        machine(
            host(
                bridge("0000:00:01.0", nvidia("0000:01:00.0", 0)),
                bridge("0000:00:02.0", pci("0000:02:00.0", "0200 [17db:0501]", os_device("", 2))),
                bridge(
                    "0000:00:03.0", pci("0000:03:00.0", "0207 [15b3:1017]", os_device("ib0", 2))
                ),
            )
        )
    ).nics
    assert [(nic.name, nic.is_rdma) for nic in nics] == [("0000:02:00.0", None), ("ib0", True)]


def test_version_1_has_numa_nodes_above_and_driver_nodes_below():
    """Version 1 nests packages in NUMA nodes; sysfs' card0 shows that a driver is there."""
    text = machine(
        '<object type="NUMANode" nodeset="0x1,,0x0">',
        host(bridge("0000:00:01.0", pci("0000:01:00.0", H100, os_device("card1", 1)))),
        "</object>",
        host(bridge("0000:80:01.0", pci("0000:81:00.0", H100, os_device("card2", 1)))),
        version=None,
    )
    topology = import_hwloc_xml(text)
    assert [gpu.numa_node for gpu in topology.gpus] == [64, None]
    assert [level.value for level in pairs(topology.pcie)] == ["?"]
    assert topology.gpus[0].model == "NVIDIA H100 80GB HBM3"
    assert topology.cpu is CpuPlatform.UNKNOWN


def test_version_3_has_bits_for_types():
    """From version 3 on osdev_type is a set of bits."""
    text = machine(
        host(
            bridge(
                "0000:00:01.0",
                pci("0000:01:00.0", "0302 [10de:ffff] [10de:0] a1 00", os_device("cuda0", 12)),
            ),
            bridge(
                "0000:00:02.0",
                pci(
                    "0000:02:00.0",
                    "0c06 [15b3:6746]",
                    os_device("ib0", 16),
                    os_device("mlx4_0", 48),
                ),
            ),
        ),
        version="3.0",
        after=infos(Architecture="aarch64"),
    )
    topology = import_hwloc_xml(text, gpu_model="Tesla M2070")
    assert topology.gpus[0].model == "Tesla M2070"
    assert [(nic.name, nic.is_rdma) for nic in topology.nics] == [("mlx4_0", True)]
    assert topology.cpu is CpuPlatform.ARM


def test_a_gpu_that_no_driver_took_is_none():
    """Its class alone does not make it usable; the driven one counts."""
    text = machine(
        host(
            bridge("0000:00:01.0", pci("0000:01:00.0", H100)),
            bridge("0000:00:02.0", nvidia("0000:02:00.0", 0)),
        )
    )
    assert import_hwloc_xml(text).n_gpus == 1


def test_functions_of_one_device_are_one_gpu():
    """The first function stands for the device."""
    text = machine(
        host(bridge("0000:00:01.0", nvidia("0000:01:00.0", 0), nvidia("0000:01:00.1", 1)))
    )
    assert [gpu.pci_bus_id for gpu in import_hwloc_xml(text).gpus] == ["0000:01:00.0"]


OPENCL = {"OpenCLDeviceType": "GPU", "GPUModel": "Tesla V100-SXM2-32GB"}


def test_virtual_machine_with_misplaced_opencl_devices():
    """All devices on one root bus: levels hidden; as many OpenCL GPUs as PCI devices: driven."""
    unknown_id = "0302 [10de:ffff] [10de:1249] a1"
    text = machine(
        host(
            pci("0000:00:03.0", "0300 [1d0f:1111]", os_device("opencl0d1", 5, **OPENCL)),
            pci("0000:00:17.0", unknown_id),
            pci("0000:00:16.0", unknown_id),
            os_device("opencl0d0", 5, **OPENCL),
            os_device("opencl1d0", 5, OpenCLDeviceType="CPU"),
        )
    )
    topology = import_hwloc_xml(text)
    assert [gpu.pci_bus_id for gpu in topology.gpus] == ["0000:00:16.0", "0000:00:17.0"]
    assert {gpu.model for gpu in topology.gpus} == {"Tesla V100-SXM2-32GB"}
    assert [level.value for level in pairs(topology.pcie)] == ["?"]


def test_misplaced_devices_of_two_models_name_none():
    """Which is which is unknown."""
    other = {**OPENCL, "GPUModel": "other"}
    text = machine(
        host(
            *(pci(f"0000:00:1{i}.0", "0302 [10de:ffff]") for i in range(2)),
            os_device("opencl0d0", 5, **OPENCL),
            os_device("opencl0d1", 5, **other),
        )
    )
    assert import_hwloc_xml(text).gpus[0].model is None


def test_a_device_without_class_is_a_gpu_by_its_library():
    """Some files leave pci_type out."""
    text = machine(
        host(
            bridge("0000:00:01.0", pci("0000:01:00.0", "", os_device("nvml0", 1))),
            bridge("0000:00:02.0", pci("0000:02:00.0", "", os_device("card7", 1))),
        )
    )
    assert import_hwloc_xml(text).n_gpus == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({"CPUModel": "POWER9, altivec supported"}, CpuPlatform.POWER9, id="POWER9"),
        pytest.param({"CPUModel": "POWER8NVL (raw)"}, CpuPlatform.UNKNOWN, id="POWER8"),
        pytest.param({"CPUVendor": "AuthenticAMD"}, CpuPlatform.AMD, id="AMD"),
        pytest.param({"CPUVendor": "GenuineIntel"}, CpuPlatform.UNKNOWN, id="Intel of no model"),
    ],
)
def test_platform(values, expected):
    """The CPU's identity stands on the package."""
    text = machine(
        package("0x1", host(bridge("0000:00:01.0", nvidia("0000:01:00.0", 0))), **values)
    )
    assert import_hwloc_xml(text).cpu is expected


@pytest.mark.parametrize(
    ("nodeset", "expected"),
    [
        pytest.param("0x00000001", 0, id="one node"),
        pytest.param("0x3", None, id="two nodes"),
        pytest.param("0x0", None, id="no node"),
        pytest.param("0xf...f", None, id="an infinite set"),
        pytest.param(",".join("0" * 65), None, id="more nodes than any machine"),
    ],
)
def test_numa_node(nodeset, expected):
    """Only a set of one node says where a device is."""
    text = machine(package(nodeset, host(bridge("0000:00:01.0", nvidia("0000:01:00.0", 0)))))
    assert import_hwloc_xml(text).gpus[0].numa_node == expected


def amd(bus, index):
    """An MI250X half with its ROCm SMI device."""
    return pci(bus, "0380 [1002:7408]", os_device(f"rsmi{index}", 1, 700 + index))


HIVE = [bridge(f"0000:00:0{3 - i}.0", amd(f"0000:0{9 - i}:00.0", i)) for i in range(3)]


def distances(name, indexes, values, *, tag="distances2"):
    """A structure of distances, its values in two pieces as hwloc wraps them."""
    words = values.split()
    return (
        f'<{tag} type="OSDev" name="{name}" indexing="gp"><indexes length="9">{indexes}</indexes>'
        f"<u64values>{' '.join(words[:2])}</u64values><u64values>{' '.join(words[2:])}</u64values>"
        f"</{tag}>"
    )


XGMI = AcceleratorLink(LinkKind.XGMI, None)


@pytest.mark.parametrize(
    ("after", "links"),
    [
        pytest.param(
            distances("XGMIBandwidth", "700 701 702", "9 5 0 5 9 5 0 5 9"),
            [XGMI, NO_LINK, XGMI],
            id="bandwidth 0 is no link",
        ),
        pytest.param(
            distances("XGMIBandwidth", "700 701 702", "9 5 5 5 9 5 5 5 9")
            + distances("XGMIHops", "700 701 702", "0 1 2 1 0 1 2 1 0"),
            [XGMI, NO_LINK, XGMI],
            id="two hops are no link of the pair's own",
        ),
        pytest.param(
            distances("XGMIBandwidth", "700 701", "9 5 5 9"),
            [XGMI, UNKNOWN_LINK, UNKNOWN_LINK],
            id="a GPU outside the matrix is unknown",
        ),
        pytest.param(
            distances("XGMIBandwidth", "700 701", "9 5 0 9"),
            [NO_LINK, UNKNOWN_LINK, UNKNOWN_LINK],
            id="one direction is no link",
        ),
        pytest.param(
            distances("NVLinkBandwidth", "700 702", "9 50000 50000 9"),
            [UNKNOWN_LINK, AcceleratorLink(LinkKind.NVLINK, None), UNKNOWN_LINK],
            id="NVLink is not counted either",
        ),
        pytest.param(
            distances("NVLinkBandwidth", "700 702", "9 5 5 9", tag="distances2hetero"),
            [UNKNOWN_LINK] * 3,
            id="a structure with switches in it is left unread",
        ),
    ],
)
def test_links_of_bandwidth_matrices(after, links):
    """The figure is a constant for XGMI, so links are not counted."""
    topology = import_hwloc_xml(machine(host(*HIVE), after=after))
    assert pairs(topology.links) == links
    assert [gpu.pci_bus_id for gpu in topology.gpus] == [
        "0000:09:00.0",
        "0000:08:00.0",
        "0000:07:00.0",
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Machine (P#0 total=252GiB)\n  Package L#0", id="console"),
        pytest.param("<system/>", id="NCCL file"),
        pytest.param("<topology>", id="cut off"),
        pytest.param(machine(), id="no PCI device"),
        pytest.param(
            machine(host(pci("0000:01:00.0", H100), os_device("eth0", 2))), id="no driver"
        ),
        pytest.param(machine(host(pci("01", H100))), id="broken address"),
        pytest.param(machine(host(bridge("", ""))), id="no address"),
        pytest.param(machine(host(os_device("a", "x"))), id="broken type"),
        pytest.param(
            machine(host(*HIVE), after=distances("XGMIBandwidth", "700 701", "1 2 3")),
            id="no square",
        ),
        pytest.param(
            machine(host(*HIVE), after=distances("XGMIBandwidth", "700 700", "1 2 3 4")),
            id="an index twice",
        ),
        pytest.param(
            machine(host(*HIVE), after=distances("XGMIBandwidth", "700", "x")), id="no number"
        ),
        pytest.param(
            machine(host(*(nvidia(f"{i:04x}:01:00.0", i) for i in range(MAX_GPUS + 1)))),
            id="too many GPUs",
        ),
        pytest.param(
            machine(
                host(
                    *(
                        pci(f"0000:0{i}:00.0", H100, os_device(f"nvml{i}", 1, NVIDIAUUID="GPU-1"))
                        for i in range(2)
                    )
                )
            ),
            id="one UUID twice",
        ),
    ],
)
def test_refused(text, check_message):
    """Each message says what is wrong."""
    with pytest.raises(ImportFormatError) as caught:
        import_hwloc_xml(text)
    check_message(caught.value)


@settings(max_examples=up_to(150), deadline=2000)
@given(st.data())
def test_only_the_documented_error_comes_out(data):
    """Cut, doubled and altered pieces of a good file either import or are refused."""
    start = data.draw(st.integers(0, len(SERVER)))
    end = data.draw(st.integers(start, min(start + 60, len(SERVER))))
    piece = data.draw(st.sampled_from(["", "<", '"', "0", "-1", "9" * 12, SERVER[start:end] * 2]))
    try:
        topology = import_hwloc_xml(SERVER[:start] + piece + SERVER[end:])
    except ImportFormatError:
        return
    assert topology.n_gpus >= 1


@given(st.text())
def test_any_text_is_refused(text):
    """Nothing but the documented error, whatever the text."""
    with pytest.raises(ImportFormatError):
        import_hwloc_xml(text)
