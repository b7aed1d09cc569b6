"""The annotation's text: read back exactly, small, deterministic, strict about anything else."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.edited_text import damaged, edited
from tests.examples import up_to
from tests.strategies import node_topologies
from tests.work import Calls
from topology.annotations import decode_devices, decode_plan
from topology.errors import CodecError, quote
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
    decode_gpus,
    decode_topology,
    encode_topology,
)
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement
from topology.value import topology_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.messages import CheckMessage

X, PIX, SYS, UNKNOWN = PcieLevel.SELF, PcieLevel.PIX, PcieLevel.SYS, PcieLevel.UNKNOWN
NV2 = AcceleratorLink(LinkKind.NVLINK, 2)

MEASURED = Measurement(
    pairs=(MeasuredPair(0, 1, 42.5),),
    sets=(MeasuredSet((0, 1), 42.25),),
    message_bytes=1 << 30,
    nccl_version="2.27.3",
    date="2026-01-31",
    source="all_reduce_perf",
)
PAIR = NodeTopology(
    gpus=(
        Gpu("GPU-a", "0000:3b:00.0", "NVIDIA A40", 46068, 0),
        Gpu("GPU-b", "0000:5e:00.0", "NVIDIA A40", 46068, 1, 3, "GPU-p"),
    ),
    links=((NO_LINK, NV2), (NV2, NO_LINK)),
    pcie=((X, SYS), (SYS, X)),
    nics=(Nic("mlx5_0", (PIX, UNKNOWN), "0000:18:00.0", 0, is_rdma=True),),
    p2p=P2pAccess.YES,
    cpu=CpuPlatform.AMD,
    measurement=MEASURED,
    name="pair",
    source="a test",
)
PAIR_TEXT = (
    '{"v":"1.0","name":"pair","source":"a test","p2p":"yes","cpu":"amd","models":["NVIDIA A40"],'
    '"gpus":[{"uuid":"GPU-a","pci":"0000:3b:00.0","model":0,"mem":46068,"numa":0},'
    '{"uuid":"GPU-b","pci":"0000:5e:00.0","model":0,"mem":46068,"numa":1,"gen":3,"parent":"GPU-p"}],'
    '"links":["n2"],"pcie":["5"],'
    '"nics":[{"name":"mlx5_0","levels":"1?","pci":"0000:18:00.0","numa":0,"rdma":true}],'
    '"measured":{"pairs":[[0,1,42.5]],"sets":[[[0,1],42.25]],"bytes":1073741824,'
    '"nccl":"2.27.3","date":"2026-01-31","source":"all_reduce_perf"}}'
)


def _full_node(*, shared: bool) -> NodeTopology:
    """Build 16 GPUs and 16 NICs with ids of real length; `shared=False` repeats no fact at all."""
    n = 16
    kinds = [LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C, LinkKind.METAXLINK]
    levels = [PcieLevel.PIX, PcieLevel.PXB, PcieLevel.PHB, PcieLevel.NODE, PcieLevel.SYS]

    def link(i: int, j: int) -> AcceleratorLink:
        if i == j:
            return NO_LINK
        low, high = sorted((i, j))
        if shared:
            return AcceleratorLink(LinkKind.NVLINK, 18)
        return AcceleratorLink(kinds[(low + high) % 4], 10 + (low * 7 + high) % 26)

    def level(i: int, j: int) -> PcieLevel:
        return X if i == j else levels[0 if shared else (i * j + i + j) % 5]

    return NodeTopology(
        gpus=tuple(
            Gpu(
                uuid=f"GPU-{i:08x}-1b3c-4d5e-8f60-{0xA1B2C3D4E5F6 + i:012x}",
                pci_bus_id=f"0000:{i:02x}:00.0",
                model="NVIDIA H100 80GB HBM3" if shared else f"NVIDIA H100 80GB HBM3 rev {i:02d}",
                memory_mib=81559 + (0 if shared else i),
                numa_node=i // 8,
                link_generation=4,
            )
            for i in range(n)
        ),
        links=tuple(tuple(link(i, j) for j in range(n)) for i in range(n)),
        pcie=tuple(tuple(level(i, j) for j in range(n)) for i in range(n)),
        nics=tuple(
            Nic(
                name=f"mlx5_{i}",
                levels=tuple(levels[(i + j) % 5] for j in range(n)),
                pci_bus_id=f"0000:{0x80 + i:02x}:00.0",
                numa_node=i // 8,
                is_rdma=True,
                gbit_per_s=400.0 if shared else 400.5 + i,
            )
            for i in range(n)
        ),
        fabrics=(
            (
                SwitchFabric(
                    ports=tuple((i, 18) for i in range(n)),
                    clique="7b968a6d-c8aa-45e1-9e07-e1e51be99c31.32766",
                ),
            )
            if shared
            else ()
        ),
        p2p=P2pAccess.YES,
        cpu=CpuPlatform.INTEL_SPR,
        measurement=Measurement(
            pairs=tuple(
                MeasuredPair(i, j, 200 + (i * 16 + j) / 1000) for i, j in combinations(range(n), 2)
            ),
            message_bytes=1 << 30,
            nccl_version="2.27.3",
            date="2026-01-31T12:00:00Z",
            source="nccl-tests 2.14.1 all_reduce_perf",
        ),
        name="a-node-with-a-long-name.example.internal",
        source="NVML 570.86.15",
    )


@given(topology=node_topologies(max_gpus=10))
def test_any_topology_reads_back_as_itself(topology: NodeTopology) -> None:
    """The plugin writes, the extender reads: not one fact may change on the way."""
    assert decode_topology(encode_topology(topology)) == topology
    assert decode_gpus(encode_topology(topology)) == topology.gpus


def test_the_text_is_the_documented_one() -> None:
    """Other programs read this text: a change of form must be seen in review."""
    assert encode_topology(PAIR) == PAIR_TEXT
    assert decode_topology(PAIR_TEXT) == PAIR


def test_whole_bandwidths_are_written_like_fractional_ones() -> None:
    """Equal values give equal text, also where one caller counts in int and one in float."""
    whole = replace(PAIR, measurement=Measurement(pairs=(MeasuredPair(0, 1, 42),)))
    fractional = replace(PAIR, measurement=Measurement(pairs=(MeasuredPair(0, 1, 42.0),)))
    assert encode_topology(whole) == encode_topology(fractional)


def test_a_rate_is_written_short() -> None:
    """A whole number without its decimals."""
    fast, slow = (replace(PAIR.nics[0], gbit_per_s=rate) for rate in (400.0, 2.5))
    text = encode_topology(replace(PAIR, nics=(fast, replace(slow, name="b"))))
    assert '"rdma":true,"gbit":400}' in text
    assert '"rdma":true,"gbit":2.5}' in text
    assert [nic.gbit_per_s for nic in decode_topology(text).nics] == [400.0, 2.5]


@pytest.mark.parametrize("shared", [True, False], ids=["one fabric", "every fact differs"])
def test_sixteen_gpus_and_nics_stay_below_8_kib(*, shared: bool) -> None:
    """Every node watcher receives this text, so its size is part of the contract."""
    topology = _full_node(shared=shared)
    text = encode_topology(topology)
    assert len(text.encode()) < 8 * 1024
    assert decode_topology(text) == topology


def test_a_large_uniform_node_is_read_back() -> None:
    """The model's 512 devices fit as long as they are as regular as machines are."""
    n = 512
    x9 = AcceleratorLink(LinkKind.XGMI, None)
    large = NodeTopology(
        gpus=tuple(Gpu() for _ in range(n)),
        links=tuple(tuple(NO_LINK if i == j else x9 for j in range(n)) for i in range(n)),
        pcie=tuple(tuple(X if i == j else SYS for j in range(n)) for i in range(n)),
    )
    assert decode_topology(encode_topology(large)) == large


def test_a_node_that_no_annotation_can_hold_is_refused_when_written(
    check_message: CheckMessage,
) -> None:
    """The API server would refuse it later, with a message that names no cause."""
    long_source = replace(PAIR, source="s" * (256 * 1024))
    with pytest.raises(CodecError) as caught:
        encode_topology(long_source)
    check_message(caught.value)


def test_text_that_utf8_cannot_carry_is_refused_when_written() -> None:
    """A lone surrogate would fail inside the HTTP client, far from its cause."""
    with pytest.raises(CodecError, match="lone surrogate"):
        encode_topology(replace(PAIR, source="\ud800"))


def test_later_minor_versions_and_their_new_keys_are_read() -> None:
    """During a rollout old readers meet new writers."""
    body = json.loads(PAIR_TEXT)
    body["v"] = "1.7"
    body["cooling"] = {"kind": "liquid"}
    body["gpus"][0]["slot"] = 3
    body["nics"][0]["speed"] = 400
    body["measured"]["tool"] = "x"
    assert decode_topology(json.dumps(body)) == PAIR


def test_the_least_text_is_one_gpu_of_which_nothing_is_known() -> None:
    """Absent keys are unknown facts, never defaults."""
    least = decode_topology('{"v":"1.0","gpus":[{}],"links":[],"pcie":[]}')
    assert least == NodeTopology(gpus=(Gpu(),), links=((NO_LINK,),), pcie=((X,),))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("v", None, id="no version"),
        pytest.param("v", 1, id="version is a number"),
        pytest.param("v", "1", id="version without minor"),
        pytest.param("v", "2.0", id="next major"),
        pytest.param("v", "0.9", id="earlier major"),
        pytest.param("gpus", None, id="no GPUs"),
        pytest.param("gpus", [], id="empty node"),
        pytest.param("gpus", [{}] * 513, id="too many GPUs"),
        pytest.param("gpus", {}, id="GPUs in an object"),
        pytest.param("gpus.0", 7, id="GPU is a number"),
        pytest.param("gpus.1.uuid", 5, id="uuid type"),
        pytest.param("gpus.1.uuid", "GPU-a", id="uuid twice"),
        pytest.param("gpus.1.uuid", "\ud800", id="uuid surrogate"),
        pytest.param("gpus.0.pci", "3b:00", id="short bus id"),
        pytest.param("gpus.0.model", 1, id="model"),
        pytest.param("gpus.0.model", -1, id="negative model"),
        pytest.param("models.0", 1, id="model name type"),
        pytest.param("gpus.0.mem", 1.5, id="float"),
        pytest.param("gpus.0.mem", True, id="bool"),
        pytest.param("gpus.0.mem", 2**63, id="beyond int64"),
        pytest.param("gpus.0.numa", -1, id="numa -1"),
        pytest.param("links", None, id="no links"),
        pytest.param("links", [], id="too few link rows"),
        pytest.param("links.0", "n2 n2", id="long row"),
        pytest.param("links.0", "n2*999", id="long run"),
        pytest.param("links.0", "n0", id="no NVLinks, written n0"),
        pytest.param("links.0", "q", id="unknown kind"),
        pytest.param("links.0", "n37", id="too many links"),
        pytest.param("links.0", 4, id="row type"),
        pytest.param("pcie.0", "6", id="unknown level"),
        pytest.param("pcie.0", "55", id="long level row"),
        pytest.param("pcie", None, id="no levels"),
        pytest.param("nics.0.name", None, id="NIC without name"),
        pytest.param("nics.0.levels", "1", id="NIC level missing"),
        pytest.param("nics.0.rdma", "yes", id="rdma type"),
        pytest.param("nics.0.gbit", "400", id="rate type"),
        pytest.param("nics.0.gbit", 0, id="rate 0"),
        pytest.param("p2p", "maybe", id="p2p value"),
        pytest.param("cpu", "z80", id="cpu value"),
        pytest.param("fabrics", [{"kind": "rope", "ports": [[0, 2]]}], id="fabric kind"),
        pytest.param("fabrics", [{"kind": "nvlink", "ports": [[0]]}], id="port without count"),
        pytest.param(
            "fabrics", [{"kind": "nvlink", "ports": [[0, 1], [1, 1]]}], id="fabric against links"
        ),
        pytest.param("measured.pairs.0", [0, 1], id="pair without GB/s"),
        pytest.param("measured.pairs.0", [0, 1, "x"], id="GB/s type"),
        pytest.param("measured.pairs.0", [0, 9, 1.0], id="pair GPU"),
        pytest.param("measured.sets.0", [[0, 1], -1], id="GB/s sign"),
        pytest.param("measured.bytes", 0, id="no bytes"),
    ],
)
def test_a_wrong_member_is_refused_by_name(
    path: str, value: object, check_message: CheckMessage
) -> None:
    """Whoever wrote the annotation must learn which member is wrong and what it should be."""
    with pytest.raises(CodecError) as caught:
        decode_topology(edited(PAIR_TEXT, path, value))
    assert str(caught.value).startswith("topology text: ")
    check_message(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(PAIR_TEXT[:-9], id="truncated"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="array"),
        pytest.param("[" * 100_000, id="deep arrays"),
        pytest.param('{"v":' * 40_000, id="deep objects"),
        pytest.param('{"v":"1.0","v":"1.0"}', id="duplicate key"),
        pytest.param('{"v":"1.0","a":NaN}', id="NaN"),
        pytest.param('{"v":"1.0","a":-Infinity}', id="infinity"),
        pytest.param('{"a":' + "9" * 50_000 + "}", id="huge integer"),
        pytest.param(PAIR_TEXT.replace("42.5]", "1e999]"), id="float overflow"),
        pytest.param("x" * 1_000_000, id="1 MB"),
        pytest.param("é" * 200_000, id="more bytes than characters"),
        pytest.param('"\ud800"', id="lone surrogate"),
    ],
)
def test_text_that_is_no_topology_is_refused(text: str, check_message: CheckMessage) -> None:
    """Anyone who may write a Node can put anything there; the extender must stay up."""
    with pytest.raises(CodecError) as caught:
        decode_topology(text)
    check_message(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("decode", [decode_topology, decode_plan, decode_devices])
def test_text_of_any_depth_is_refused(decode: Callable[[str], object]) -> None:
    """Some depths can be decoded, and then not be repeated in the message."""
    for depth in range(600, 1100):
        with pytest.raises(CodecError):
            decode('{"v":' + "[" * depth + "]" * depth + "}")
        with pytest.raises(CodecError):
            decode("[" * depth + "]" * depth)


def test_a_value_that_is_nested_too_deep_is_named() -> None:
    """Its text would not fit into a message either."""
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert quote(value) == "list that is nested too deep"


def _hostile_pair(**members: object) -> str:
    return json.dumps({"v": "1.0", "gpus": [{}, {}], "links": ["-"], "pcie": ["5"], **members})


def _long_runs(n: int) -> str:
    return _hostile_pair(links=[" ".join(["n*999"] * n)])


def _late_key(n: int) -> str:
    return "{" + ",".join(f'"{i}":0' for i in [*range(n), n - 1]) + "}"


def _late_nic(n: int) -> str:
    return _hostile_pair(nics=[{"name": f"{i}", "levels": "11"} for i in [*range(n), n - 1]])


def _late_pair(n: int) -> str:
    return _hostile_pair(measured={"pairs": [[i, n, 1] for i in [*range(n), n - 1]]})


@pytest.mark.parametrize(
    ("text", "n"),
    [
        pytest.param(_long_runs, 40_000, id="runs that would expand to 40 million links"),
        pytest.param(_late_key, 20_000, id="a late duplicate among 20,000 keys"),
        pytest.param(_late_nic, 7_000, id="a late duplicate among 7,000 NICs"),
        pytest.param(_late_pair, 12_000, id="a late duplicate among 12,000 measured pairs"),
    ],
)
def test_hostile_text_is_refused_in_linear_work(text: Callable[[int], str], n: int) -> None:
    """A watch event is decoded in the extender's own thread: no text may hold it up, or fill it.

    Eight times the text takes eight times the calls and the memory; what compares each with each,
    or expands, takes 64 times.
    """
    (n_calls, n_bytes), (n_before, n_bytes_before) = _work(text(n)), _work(text(n // 8))
    assert n_calls < 12 * n_before
    assert n_bytes < 12 * n_bytes_before


def _work(text: str) -> tuple[int, int]:
    """The calls, and the most bytes, that refusing a text takes."""
    calls = Calls()
    tracemalloc.start()
    try:
        with calls.counting(), pytest.raises(CodecError):
            decode_topology(text)
        return calls.n, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@settings(max_examples=up_to(150))
@given(
    text=st.one_of(
        st.text(),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
            lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
        ).map(json.dumps),
    )
)
def test_only_codec_errors_come_out_of_any_text(text: str) -> None:
    """Foreign exceptions stop at this door."""
    for decode in (decode_topology, decode_gpus):
        with pytest.raises(CodecError):
            decode(text)


@settings(max_examples=up_to(150))
@given(data=st.data(), topology=node_topologies(max_gpus=4))
def test_only_codec_errors_come_out_of_damaged_text(
    data: st.DataObject, topology: NodeTopology
) -> None:
    """Text that is nearly right reaches code that noise never does."""
    text = damaged(data, encode_topology(topology), '0123456789"{}[],:.-?nxcm*eE')
    try:
        decoded = decode_topology(text)
    except CodecError:
        return
    assert isinstance(decoded, NodeTopology)


@given(topology=node_topologies(max_gpus=6))
def test_the_digest_leaves_out_what_distinguishes_equal_machines(topology: NodeTopology) -> None:
    """Thousands of nodes of one type must share one set of tables."""
    renamed = replace(
        topology,
        name="other",
        source="other",
        gpus=tuple(
            replace(gpu, uuid=f"other-{i}", pci_bus_id=None, parent=gpu.parent and "p" + gpu.parent)
            for i, gpu in enumerate(topology.gpus)
        ),
        nics=tuple(
            replace(nic, name=f"other{i}", pci_bus_id=None)
            for i, nic in enumerate(reversed(topology.nics))
        ),
        fabrics=tuple(replace(fabric, clique="other") for fabric in topology.fabrics),
        measurement=topology.measurement
        and replace(topology.measurement, date="other", source="other", nccl_version="other"),
    )
    assert topology_digest(renamed) == topology_digest(topology)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(replace(PAIR, p2p=P2pAccess.NO), id="P2P access"),
        pytest.param(replace(PAIR, cpu=CpuPlatform.ARM), id="CPU platform"),
        pytest.param(replace(PAIR, links=((NO_LINK, NO_LINK),) * 2), id="no link"),
        pytest.param(
            replace(PAIR, links=((NO_LINK, UNKNOWN_LINK), (UNKNOWN_LINK, NO_LINK))),
            id="link unknown",
        ),
        pytest.param(replace(PAIR, pcie=((X, PIX), (PIX, X))), id="PCIe level"),
        pytest.param(replace(PAIR, gpus=(PAIR.gpus[0], Gpu())), id="GPU model"),
        pytest.param(replace(PAIR, nics=()), id="no NIC"),
        pytest.param(
            replace(PAIR, nics=(replace(PAIR.nics[0], is_rdma=None),)), id="NIC maybe without RDMA"
        ),
        pytest.param(
            replace(PAIR, fabrics=(SwitchFabric(ports=((0, 2), (1, 2))),)), id="through a switch"
        ),
        pytest.param(replace(PAIR, measurement=None), id="not measured"),
        pytest.param(
            replace(PAIR, measurement=replace(MEASURED, message_bytes=1 << 24)),
            id="measured at another message size",
        ),
    ],
)
def test_the_digest_holds_what_a_value_depends_on(changed: NodeTopology) -> None:
    """Two nodes that share a digest share their values, so no such fact may be left out."""
    assert topology_digest(changed) != topology_digest(PAIR)


@pytest.mark.parametrize(
    ("nic", "counts"),
    [
        pytest.param(Nic("a", (PIX, SYS), is_rdma=True), True, id="near a GPU"),
        pytest.param(Nic("a", (UNKNOWN, SYS), is_rdma=None), True, id="near for all that is known"),
        pytest.param(Nic("a", (PIX, SYS), is_rdma=False), False, id="not RDMA"),
        pytest.param(Nic("a", (SYS, SYS), is_rdma=True), False, id="far from every GPU"),
    ],
)
def test_the_digest_holds_a_rate_where_a_group_may_use_it(nic: Nic, *, counts: bool) -> None:
    """A NIC that carries no traffic of a group must not make a node a type of its own."""
    plain, fast, slow = (
        topology_digest(replace(PAIR, nics=(replace(nic, gbit_per_s=rate),)))
        for rate in (None, 400.0, 200.0)
    )
    assert len({plain, fast, slow}) == (3 if counts else 1)


def test_the_digest_covers_which_devices_share_a_parent() -> None:
    """Two replicas of one GPU are no pair of GPUs, whatever their parent is called."""
    one = replace(PAIR, gpus=(Gpu(parent="GPU-x"), Gpu(parent="GPU-x")))
    two = replace(PAIR, gpus=(Gpu(parent="GPU-x"), Gpu(parent="GPU-y")))
    assert topology_digest(one) != topology_digest(two)
    assert len(topology_digest(one)) == 32


def test_the_digest_is_stable_over_releases() -> None:
    """A digest may be kept in a log or a file: a change of its form must be seen in review."""
    assert topology_digest(PAIR) == "51da1e5ce005080bc9828d342b6416d5"
