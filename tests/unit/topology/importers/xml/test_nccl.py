"""NCCL and RCCL topology XML, in small machines written for these tests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.machines import pairs
from topology.errors import ImportFormatError
from topology.importers.xml.nccl import import_nccl_xml
from topology.importers.xml.nics import MAX_NICS
from topology.model import (
    GA102_GENERATION,
    MAX_GPUS,
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    LinkKind,
    PcieLevel,
    SwitchFabric,
)

AMD_CPU = 'arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1"'


def gpu(bus, dev=None, *, inside="", pci="", sm=90):
    """One GPU with its PCI element."""
    number = "" if dev is None else f'dev="{dev}"'
    return (
        f'<pci busid="{bus}" class="0x030200" vendor="0x10de" {pci}>'
        f'<gpu {number} sm="{sm}" rank="0" gdr="1">{inside}</gpu></pci>'
    )


def nvlink(target, count, tclass="0x068000", tag="nvlink"):
    """One link element."""
    return f'<{tag} target="{target}" count="{count}" tclass="{tclass}"/>'


def switch(bus, *inside):
    """A PCIe switch."""
    return f'<pci busid="{bus}" class="0x060400">{"".join(inside)}</pci>'


def nic(bus, *names, pci_class="0x020000"):
    """A network controller with its ports."""
    nets = "".join(f'<net name="{name}" dev="0" speed="100000" port="1"/>' for name in names)
    return f'<pci busid="{bus}" class="{pci_class}"><nic>{nets}</nic></pci>'


def cpu(*inside, numa="0", attributes=AMD_CPU):
    """One CPU, as NCCL writes one per NUMA node."""
    return f'<cpu numaid="{numa}" {attributes}>{"".join(inside)}</cpu>'


def system(*cpus):
    """A whole document."""
    return f'<system version="1">{"".join(cpus)}</system>'


TWO_SOCKETS = system(
    cpu(
        switch(
            "0000:01:00.0",
            gpu("0000:03:00.0", 0, inside=nvlink("0000:aa:00.0", 6) + nvlink("0000:ab:00.0", 6)),
            gpu("0000:04:00.0", 1, inside=nvlink("0000:aa:00.0", 12)),
            nic("0000:05:00.0", "mlx5_0"),
        ),
    ),
    cpu(
        switch(
            "0000:81:00.0",
            switch("0000:83:00.0", gpu("0000:85:00.0", 2, inside=nvlink("fffffff:ffff:ff", 10))),
            nic("0000:86:00.0", "eno1", "eno2"),
        ),
        gpu("0000:a1:00.0", 3),
        numa="1",
    ),
)


class TestTwoSockets:
    topology = import_nccl_xml(TWO_SOCKETS)

    def test_levels_follow_the_tree(self):
        """PIX below a switch, NODE between roots of a CPU, SYS between CPUs."""
        assert [level.value for level in pairs(self.topology.pcie)] == [
            *("PIX", "SYS", "SYS"),
            *("SYS", "SYS"),
            "NODE",
        ]

    def test_switch_ports_are_summed_per_gpu_and_limited_per_pair(self):
        """A far end that a VM hides counts as a switch; a GPU without links is outside."""
        assert self.topology.fabrics == (SwitchFabric(ports=((0, 12), (1, 12), (2, 10))),)
        assert self.topology.links[0][2] == AcceleratorLink(LinkKind.NVLINK, 10)
        assert self.topology.links[0][3] == NO_LINK

    def test_gpus_carry_what_the_file_says(self):
        """NUMA node and generation; the generation only where a GPU has links."""
        assert [gpu.numa_node for gpu in self.topology.gpus] == [0, 0, 1, 1]
        assert [gpu.link_generation for gpu in self.topology.gpus] == [4, 4, 4, None]
        assert self.topology.cpu is CpuPlatform.AMD

    def test_nics_have_levels_and_know_whether_they_are_rdma(self):
        """Two ports of a controller are two NICs; a socket interface is no RDMA device."""
        first, second, third = self.topology.nics
        assert (first.name, first.is_rdma, first.numa_node) == ("mlx5_0", True, 0)
        assert [level.value for level in first.levels] == ["PIX", "PIX", "SYS", "SYS"]
        assert (second.name, second.is_rdma) == ("eno1", False)
        assert [level.value for level in third.levels] == ["SYS", "SYS", "PXB", "NODE"]
        assert second.pci_bus_id == third.pci_bus_id == "0000:86:00.0"


@pytest.mark.parametrize(
    ("name", "speed", "expected"),
    [
        pytest.param("mlx5_0", 'speed="400000"', 400, id="RDMA, in Mbit/s"),
        pytest.param("mlx5_0", 'speed="2500"', 2.5, id="a fraction"),
        pytest.param("eth0", 'speed="10000"', None, id="a socket: NCCL's default"),
        pytest.param("mlx5_0", "", None, id="none"),
        pytest.param("mlx5_0", 'speed="0"', None, id="zero"),
        pytest.param("mlx5_0", 'speed="-1"', None, id="NCCL's unknown"),
        pytest.param("mlx5_0", 'speed="fast"', None, id="no number"),
        pytest.param("cxi0", 'speed="200000000"', None, id="a file in kbit/s"),
    ],
)
def test_speed_is_the_rate_of_an_rdma_nic(name, speed, expected):
    """Unknown is never zero, and a default of NCCL's is no fact of the machine."""
    net = (
        f'<pci busid="0000:05:00.0" class="0x020000"><nic><net name="{name}" {speed}/></nic></pci>'
    )
    topology = import_nccl_xml(system(cpu(gpu("0000:01:00.0", 0), net)))
    assert [nic.gbit_per_s for nic in topology.nics] == [expected]


def test_no_link_element_means_unknown():
    """A cloud provider's file leaves NVLink to NVML: absent is not none."""
    topology = import_nccl_xml(system(cpu(gpu("0000:01:00.0", 0), gpu("0000:02:00.0", 1))))
    assert topology.links[0][1] == UNKNOWN_LINK


def test_direct_links_and_silence_beside_them():
    """A bridge pair beside a card without bridge."""
    peer = "0x030200"
    topology = import_nccl_xml(
        system(
            cpu(
                gpu("0000:01:00.0", 0, inside=nvlink("0000:02:00.0", 4, peer), sm=86),
                gpu("0000:02:00.0", 1, inside=nvlink("0000:01:00.0", 4, peer), sm=86),
                gpu("0000:03:00.0", 2, sm=86),
            )
        )
    )
    assert pairs(topology.links) == [AcceleratorLink(LinkKind.NVLINK, 4), NO_LINK, NO_LINK]
    assert topology.gpus[0].link_generation == GA102_GENERATION
    assert topology.fabrics == ()


def test_links_to_cpus_and_to_gpus_outside_the_file_join_no_gpus():
    """POWER9 has NVLink to the CPU; a job's file may leave a neighbour's GPU out."""
    inside = nvlink("0000:0a:00.0", 3, "0x068001") + nvlink("0000:09:00.0", 3, "0x030200")
    topology = import_nccl_xml(
        system(cpu(gpu("0000:01:00.0", 0, inside=inside), gpu("0000:02:00.0", 1, inside=inside)))
    )
    assert topology.links[0][1] == NO_LINK
    assert topology.fabrics == ()


def test_a_gpu_that_names_itself_leaves_its_pairs_unknown():
    """Seen in a published file of bridge pairs: which pairs is unknown."""
    topology = import_nccl_xml(
        system(
            cpu(
                gpu("0000:01:00.0", 0, inside=nvlink("0000:01:00.0", 12, "0x030200")),
                gpu("0000:02:00.0", 1, inside=nvlink("0000:02:00.0", 12, "0x030200")),
                gpu("0000:03:00.0", 2),
            )
        )
    )
    assert pairs(topology.links) == [UNKNOWN_LINK, NO_LINK, NO_LINK]


def test_xgmi_is_a_kind_of_its_own():
    """RCCL writes <xgmi>; other elements of a GPU are passed over."""
    own = '<c2c bw="1" count="2"/>'
    topology = import_nccl_xml(
        system(
            cpu(
                gpu("0000:01:00.0", 0, inside=own + nvlink("0000:02:00.0", 2, "0x038000", "xgmi")),
                gpu("0000:02:00.0", 1, inside=nvlink("0000:01:00.0", 2, "0x038000", "xgmi")),
            )
        )
    )
    assert topology.links[0][1] == AcceleratorLink(LinkKind.XGMI, 2)


def test_without_gpu_elements_pci_classes_count_in_the_order_of_addresses():
    """Files that providers write for VMs list devices in any order; NVML counts by address."""
    leaf = '<pci busid="{}" class="{}"/>'
    topology = import_nccl_xml(
        system(
            cpu(
                switch("ffff:ff:01.0", leaf.format("0003:00:00.0", "0x030200")),
                leaf.format("0102:00:00.0", "0x020700"),
                '<pci busid="0103:00:00.0" class="0x020000" device="0xefa1"/>',
                leaf.format("0104:00:00.0", "0x020000"),
                leaf.format("0104:00:00.0", "0x020000"),
                leaf.format("0105:00:00.0", "0x010800"),
            ),
            cpu(leaf.format("0001:00:00.0", "0x030200"), numa="1"),
        ),
        gpu_model="NVIDIA A100-SXM4-40GB",
    )
    assert [gpu.pci_bus_id for gpu in topology.gpus] == ["0001:00:00.0", "0003:00:00.0"]
    assert [gpu.numa_node for gpu in topology.gpus] == [1, 0]
    assert {gpu.model for gpu in topology.gpus} == {"NVIDIA A100-SXM4-40GB"}
    assert [(nic.name, nic.is_rdma) for nic in topology.nics] == [
        ("0102:00:00.0", True),
        ("0103:00:00.0", True),
        ("0104:00:00.0", None),
        ("0104:00:00.0#2", None),
    ]


def test_gpus_stand_in_the_order_of_dev():
    """NCCL sets dev to the NVML index."""
    text = system(cpu(gpu("0000:02:00.0", 1), gpu("0000:03:00.0", 0)))
    assert [g.pci_bus_id for g in import_nccl_xml(text).gpus] == ["0000:03:00.0", "0000:02:00.0"]


def test_an_incomplete_dev_is_no_order():
    """One GPU without dev, or two with the same: by address."""
    text = system(cpu(gpu("0000:03:00.0", 0), gpu("0000:02:00.0")))
    assert [g.pci_bus_id for g in import_nccl_xml(text).gpus] == ["0000:02:00.0", "0000:03:00.0"]


def test_the_device_id_names_the_model_before_the_caller_does():
    """`gpu_model` is for files that name none."""
    text = system(cpu(gpu("0000:01:00.0", 0, pci='device="0x20b0"')))
    assert import_nccl_xml(text, gpu_model="other").gpus[0].model == "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("first", "second", "level", "numa"),
    [
        pytest.param(None, None, PcieLevel.UNKNOWN, None, id="a single CPU has no NUMA node"),
        pytest.param(AMD_CPU, "1", PcieLevel.NODE, 0, id="AMD: stacks are host bridges"),
        pytest.param('arch="ppc64"', "1", PcieLevel.UNKNOWN, 0, id="POWER: unknown"),
        pytest.param('arch="arm64"', "-1", PcieLevel.UNKNOWN, 0, id="Arm: unknown"),
        pytest.param('arch="riscv"', "1", PcieLevel.UNKNOWN, 0, id="any other: unknown"),
    ],
)
def test_two_roots_of_one_cpu(first, second, level, numa):
    """NCCL draws no host bridges, so PHB and NODE look alike."""
    two = (gpu("0000:01:00.0", 0), gpu("0000:21:00.0", 1))
    attributes = AMD_CPU if first is None else first
    others = () if second is None else (cpu(numa=second, attributes=attributes),)
    topology = import_nccl_xml(system(cpu(*two, attributes=attributes), *others))
    assert topology.pcie[0][1] is level
    assert topology.gpus[0].numa_node == numa


def test_two_pci_domains_of_one_numa_node_are_node_apart():
    """No host bridge joins them; so GB300 and GH200 print it, with a domain for each root port."""
    arm = 'arch="arm64"'
    near = switch("0001:01:00.0", gpu("0001:02:00.0", 0)), nic("0002:01:00.0", "mlx5_0")
    far = switch("0003:01:00.0", gpu("0003:02:00.0", 1))
    text = system(cpu(*near, attributes=arm), cpu(far, numa="1", attributes=arm))
    topology = import_nccl_xml(text)
    assert topology.nics[0].levels == (PcieLevel.NODE, PcieLevel.SYS)
    assert topology.pcie[0][1] is PcieLevel.SYS
    alone = import_nccl_xml(system(cpu(*near, attributes=arm)))
    assert alone.nics[0].levels == (PcieLevel.UNKNOWN,)


def test_devices_on_a_root_bus_are_hidden_by_a_hypervisor():
    """Passed-through devices sit alone on bus 0 of a domain of their own."""
    topology = import_nccl_xml(
        system(cpu(gpu("0001:00:00.0", 0), gpu("0002:00:00.0", 1)), cpu(numa="1"))
    )
    assert topology.pcie[0][1] is PcieLevel.UNKNOWN


def test_cpus_that_differ_have_no_common_platform():
    """Two vendors in one file cannot be rated as one."""
    text = system(cpu(gpu("0000:01:00.0", 0)), cpu(numa="1", attributes='arch="arm64"'))
    assert import_nccl_xml(text).cpu is CpuPlatform.UNKNOWN


def test_software_interfaces_are_left_out():
    """Bridges and virtual Ethernet hang directly below <cpu> and have no place."""
    text = system(cpu(gpu("0000:01:00.0", 0), '<nic><net name="br-1"/></nic>'))
    assert import_nccl_xml(text).nics == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<graphs/>", id="graph file"),
        pytest.param("<html/>", id="another document"),
        pytest.param("<system>", id="cut off"),
        pytest.param("<system/>", id="empty"),
        pytest.param(
            system(cpu(switch("0000:00:16.0"), "<pci busid='0000:00:17.0'/>")),
            id="PCI devices without a class",
        ),
        pytest.param(
            system(cpu(attributes='host_hash="0x1"'), cpu(attributes='host_hash="0x2"')),
            id="several hosts",
        ),
        pytest.param(
            system(cpu(gpu("0000:01:00.0", 0), gpu("0000:01:00.0", 1))), id="one address twice"
        ),
        pytest.param(system(cpu(gpu("01:00", 0))), id="broken address"),
        pytest.param(
            system(cpu('<pci busid="0000:37:00.0" class="0x038000" vendor="0x1d94"/>')),
            id="a GPU class of another vendor",
        ),
        pytest.param(system(cpu(gpu("0000:01:00.0", "x"))), id="dev is no number"),
        pytest.param(system(cpu(gpu("0000:01:00.0", 0, inside=nvlink("a", "")))), id="no count"),
        pytest.param(
            system(cpu(gpu("0000:01:00.0", 0, inside=nvlink("a", 99)))), id="too many links"
        ),
        pytest.param(
            system(cpu(gpu("0000:01:00.0", 0, inside=nvlink("a", 30) * 2))), id="too many ports"
        ),
        pytest.param(
            system(cpu(*(gpu(f"{i:04x}:01:00.0") for i in range(MAX_GPUS + 1)))), id="too many GPUs"
        ),
        pytest.param(
            system(cpu(gpu("0000:01:00.0"), nic("0000:02:00.0", *"x" * (MAX_NICS + 1)))),
            id="too many NICs",
        ),
    ],
)
def test_refused(text, check_message):
    """Each message says what is wrong."""
    with pytest.raises(ImportFormatError) as caught:
        import_nccl_xml(text)
    check_message(caught.value)


@settings(max_examples=up_to(150), deadline=2000)
@given(st.data())
def test_only_the_documented_error_comes_out(data):
    """Cut, doubled and altered pieces of a good file either import or are refused."""
    start = data.draw(st.integers(0, len(TWO_SOCKETS)))
    end = data.draw(st.integers(start, min(start + 60, len(TWO_SOCKETS))))
    piece = data.draw(
        st.sampled_from(["", "<", '"', "0", "-1", "9" * 12, TWO_SOCKETS[start:end] * 2])
    )
    try:
        topology = import_nccl_xml(TWO_SOCKETS[:start] + piece + TWO_SOCKETS[end:])
    except ImportFormatError:
        return
    assert topology.n_gpus >= 1


@given(st.text())
def test_any_text_is_imported_or_refused(text):
    """Nothing but the documented error, whatever the text."""
    with pytest.raises(ImportFormatError):
        import_nccl_xml(text)
