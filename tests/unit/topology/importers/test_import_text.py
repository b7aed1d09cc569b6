"""The one door for recordings: which format a text is, and that only one error comes out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import ImportFormatError
from topology.importers import FileFormat, import_text
from topology.importers.detect import detect_format
from topology.importers.dispatch import MAX_CHARACTERS
from topology.model import (
    NO_LINK,
    AcceleratorLink,
    Gpu,
    LinkKind,
    NodeTopology,
    PcieLevel,
    encode_topology,
)

PAIR = NodeTopology(
    gpus=(Gpu(model="NVIDIA A40"), Gpu(model="NVIDIA A40")),
    links=(
        (NO_LINK, AcceleratorLink(LinkKind.NVLINK, 4)),
        (AcceleratorLink(LinkKind.NVLINK, 4), NO_LINK),
    ),
    pcie=((PcieLevel.SELF, PcieLevel.PXB), (PcieLevel.PXB, PcieLevel.SELF)),
)

NCCL = """<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:17:00.0" class="0x060400">
      <pci busid="0000:18:00.0" class="0x030200"><gpu dev="0" sm="70" rank="0" gdr="1"/></pci>
      <pci busid="0000:19:00.0" class="0x030200"><gpu dev="1" sm="70" rank="1" gdr="1"/></pci>
    </pci>
  </cpu>
</system>
"""
HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0xf" nodeset="0x1">
    <object type="NUMANode" os_index="0" cpuset="0xf" nodeset="0x1"/>
    <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[00-02]">
      <object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:ffff] [0000:0000] a1">
        <object type="OSDev" name="nvml0" subtype="NVML" osdev_type="1"/>
      </object>
      <object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0302 [10de:ffff] [0000:0000] a1">
        <object type="OSDev" name="nvml1" subtype="NVML" osdev_type="1"/>
      </object>
    </object>
  </object>
</topology>
"""
ROCM = """========= Link Type between two GPUs =========
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
"""
SMI = "        GPU0    GPU1\nGPU0     X      NV4/PXB\nGPU1    NV4/PXB  X\n"
MATRIX = "X,NV4/PXB\nNV4/PXB,X\n"
RECORDING = """# a pair
name = "pair"
title = "two bridged GPUs"
source = ["this test"]
count = 2
[links]
kind = "nvlink"
pairs = ["0-1:4"]
rest = "none"
[pcie]
rest = "PXB"
"""
FORMATS = {
    FileFormat.SMI: SMI,
    FileFormat.NCCL_XML: NCCL,
    FileFormat.HWLOC_XML: HWLOC,
    FileFormat.ROCM_SMI: ROCM,
    FileFormat.MATRIX_CSV: MATRIX,
    FileFormat.ANNOTATION: encode_topology(PAIR),
    FileFormat.RECORDING: RECORDING,
}


@pytest.mark.parametrize("file_format", FileFormat, ids=lambda found: found.value)
def test_the_content_alone_decides_the_format(file_format):
    """Files arrive through pipes and pastes, without a name."""
    text = FORMATS[file_format]
    assert detect_format(text) is file_format
    assert import_text(text).n_gpus == 2
    assert import_text("\ufeff" + text).n_gpus == 2
    assert import_text(text, file_format=file_format) == import_text(text)


def test_a_matrix_in_a_json_log_is_no_annotation():
    """Log shippers wrap lines into JSON; an annotation starts with its version."""
    assert import_text(json.dumps({"log": SMI})) == import_text(SMI)
    assert detect_format('{"gpus": 8, "v": 1}') is FileFormat.ANNOTATION


def test_a_comment_before_the_root_does_not_hide_it():
    """Cloud providers put a licence before the root element."""
    assert detect_format("<!-- Copyright -->\n" + NCCL) is FileFormat.NCCL_XML


@pytest.mark.parametrize(
    "file_format",
    [FileFormat.SMI, FileFormat.NCCL_XML, FileFormat.HWLOC_XML, FileFormat.ROCM_SMI],
    ids=lambda found: found.value,
)
def test_the_caller_may_name_the_model(file_format):
    """Most recordings name no model; the caller knows it."""
    gpus = import_text(FORMATS[file_format], gpu_model="Some Accelerator").gpus
    assert [gpu.model for gpu in gpus] == ["Some Accelerator"] * 2


def test_our_own_formats_keep_their_models():
    """An annotation says what was found on the node; a guess from outside is no better."""
    assert import_text(encode_topology(PAIR), gpu_model="Tesla T4") == PAIR


P2P = "\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"
USELESS = [
    ("nvlink status", "GPU 0: NVIDIA A40 (UUID: x)\n\t Link 0: 14.062 GB/s\n", "nvlink -s"),
    (
        "nvlink status, no links",
        "GPU 0: T4\nNVML: Unable to retrieve NVLink information as all links are inActive\n",
        "nvlink -s",
    ),
    ("memory access", P2P, "topo -p2p` output.*run `nvidia-smi topo -m`"),
    ("NUMA nodes", "/sys/devices/system/node/node0/cpulist:0-3\n", "names no GPU"),
    ("mock NVML", 'version: "1.0"\ndevice_defaults:\n  name: "NVIDIA T4"\n', "mock NVML"),
    ("lstopo's text", "Machine (P#0 total=1GiB)\n  Package L#0\n    PU L#0\n", "lstopo --of xml"),
    ("nothing", "", "no recording that can be read: it is empty, expected an nvidia-smi"),
    ("prose", "Dear all,\nthe GPUs are slow.\n", "it starts with 'Dear all,', expected an nvidia"),
    ("other XML", "<html><body>GPU0</body></html>", "it starts with '<html>"),
    ("a graph of NCCL", '<graphs version="1"></graphs>', "graph file"),
    ("JSON of others", '{"gpus": 8}', "^no recording that can be read: it starts with"),
    ("a recording with a typing error", RECORDING.replace("count", "conut"), "conut"),
    (
        "a fabric that is none",
        "GPU0 GPU1 GPU2\nGPU0 X NV18 NV18\nGPU1 NV18 X PIX\nGPU2 NV18 PIX X\n",
        "expected 18",
    ),
]


@pytest.mark.parametrize(
    ("text", "reason"), [row[1:] for row in USELESS], ids=[row[0] for row in USELESS]
)
def test_a_refusal_says_what_the_text_is(text, reason):
    """People try what they have; the message must say why not and what to run instead."""
    with pytest.raises(ImportFormatError, match=reason):
        import_text(text)


@pytest.mark.parametrize("file_format", FileFormat, ids=lambda found: found.value)
def test_a_format_forced_on_other_text_is_refused(file_format):
    """The caller may be wrong about the format; that is no reason to crash."""
    with pytest.raises(ImportFormatError):
        import_text("Dear all,", file_format=file_format)


def test_what_is_too_long_to_be_a_recording_is_not_read(check_message):
    """Time is bounded by refusing what no tool prints, before anything looks at it."""
    with pytest.raises(ImportFormatError) as caught:
        import_text("x" * (MAX_CHARACTERS + 1))
    check_message(caught.value)


def test_a_blank_model_is_refused(check_message):
    """An empty variable in a script must not become a model without a name."""
    with pytest.raises(ImportFormatError) as caught:
        import_text(SMI, gpu_model=" ")
    check_message(caught.value)


LONG = 200_000


@pytest.mark.parametrize(
    "text",
    [
        "\n" * LONG,
        " \t" * LONG,
        "Machine (\n" * LONG,
        "GPU0 " * LONG,
        "\x1b[" * LONG,
        "GPU 0: " + "a " * LONG,
        "[[" * LONG,
        "GPU0\n" + "".join(f"NIC{i}\n" for i in range(LONG)),
    ],
    ids=["newlines", "blanks", "lstopo", "header", "escapes", "name", "brackets", "broken header"],
)
def test_long_garbage_is_refused_in_linear_time(text):
    """No pattern may go back and forth over the text: a run of one sign shows it at once."""
    with pytest.raises(ImportFormatError):
        import_text(text)


ANY_FORMAT = st.one_of(st.none(), st.sampled_from(FileFormat))


@given(text=st.text(max_size=300), file_format=ANY_FORMAT)
def test_any_text_reads_or_is_refused(text, file_format):
    """Nothing but the documented error comes out, whatever comes in."""
    try:
        import_text(text, file_format=file_format)
    except ImportFormatError:
        return


@given(
    source=st.sampled_from(sorted(FORMATS.values())),
    edits=st.lists(
        st.tuples(st.integers(0, 900), st.integers(0, 30), st.text(max_size=5)), max_size=5
    ),
    file_format=ANY_FORMAT,
)
def test_a_damaged_recording_of_any_format_reads_or_is_refused(source, edits, file_format):
    """Cut, overwritten and mixed recordings end in a checked topology or in the one error."""
    for place, length, new in edits:
        source = source[:place] + new + source[place + length :]
    try:
        topology = import_text(source, file_format=file_format)
    except ImportFormatError:
        return
    assert topology.n_gpus >= 1
