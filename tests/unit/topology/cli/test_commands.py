"""The command line: what each command answers, its exit codes, and one sentence for each error."""

import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from topology.annotations import POD_KEYS
from topology.cli import commands, reading, this_machine
from topology.cli.program import version
from topology.importers import FileFormat
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    Gpu,
    Nic,
    NodeTopology,
    PcieLevel,
    decode_topology,
    names,
)
from topology.recordings import load_recording, recording_names

SMI = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      NV4     SYS     SYS     0-15    0
GPU1    NV4      X      SYS     SYS     0-15    0
GPU2    SYS     SYS      X      NV4     16-31   1
GPU3    SYS     SYS     NV4      X      16-31   1
"""


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the program; give its exit code, standard output and standard error."""

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            commands.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(caught.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture
def bridged(tmp_path):
    """Keep a recording of two NVLink pairs in a file."""
    path = tmp_path / "bridged.txt"
    path.write_text(SMI)
    return path


def test_wishes_have_the_choices_of_their_annotations(run):
    """What is tried out here is then written on a pod."""
    _, printed, _ = run("best", "--help")
    options = {key.name.removeprefix(names.PREFIX): key for key in POD_KEYS}
    offered = {name for name in options if f"  --{name} " in printed}
    assert offered == {"affinity", "policy", "min-bandwidth", "nic"}
    for name in offered:
        described = "".join(printed.partition(f"  --{name} ")[2].split())  # wrapped anywhere
        choices = "|".join(choice.value for choice in options[name].choices)
        assert choices in described.partition("How")[0] + described
        assert "".join(options[name].summary.split()) in described


# --- Commands -----------------------------------------------------------------------------------


def test_show_prints_both_facts_about_every_pair(run):
    """`topo -m` hides the PCIe level where there is NVLink; here both stand."""
    code, out, err = run("show", "dgx-1-v100")
    lines = out.splitlines()
    links = lines[lines.index("Accelerator links") + 2]
    levels = lines[lines.index("PCIe levels") + 2]
    assert (code, err) == (0, "")
    assert links.split() == ["GPU0", "X", "NV1", "NV1", "NV2", "NV2", "-", "-", "-"]
    assert levels.split()[:9] == ["GPU0", "X", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]


@pytest.mark.parametrize("name", recording_names())
def test_every_shipped_machine_can_be_shown(run, name):
    """No kind of machine may break the tables, and no line may hold terminal codes in a pipe."""
    code, out, err = run("show", name)
    assert (code, err) == (0, "")
    assert out.startswith(name)
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_show_annotation_is_the_codec_text(run):
    """The text can be pasted on a Node, and read back."""
    code, out, _ = run("show", "--annotation", "summit")
    assert code == 0
    assert decode_topology(out).n_gpus == load_recording("summit").n_gpus


def test_show_says_what_was_measured(run, bridged, tmp_path):
    """Figures of this very node are part of what is known of it."""
    (tmp_path / "m.json").write_text('{"pairs": [[0, 1, 50]], "nccl_version": "2.21"}')
    code, out, _ = run("show", "--measured", tmp_path / "m.json", bridged)
    assert code == 0
    assert "1 pairs, 0 sets; message bytes ?, NCCL 2.21, date ?" in out


def test_value_says_what_limits_a_set(run, bridged):
    """A set over the sockets is worth what the socket link carries."""
    code, out, _ = run("value", "--gpus", "0,2", "--gpu-model", "NVIDIA RTX A6000", bridged)
    facts = dict(line.split("  ", 1) for line in out.splitlines() if "  " in line)
    assert code == 0
    assert facts["limited by"].strip() == "the link between CPU sockets"
    assert facts["affinity nvlink"].strip() == "no"
    assert facts["best set of 2"].strip().startswith("0,1 with ")


def test_best_respects_free_and_must_include(run):
    """The kubelet's own three inputs."""
    code, out, _ = run(
        "best", "--size", 2, "--free", "1,4-7", "--must-include", 1, "--json", "dgx-1-v100"
    )
    report = json.loads(out)
    assert code == 0
    assert report["request"]["free"] == [1, 4, 5, 6, 7]
    assert report["selected"]["gpus"] == [1, 5]


def test_best_names_the_affinity_of_the_request(run):
    """A preferred level may fail to hold, and then it says so."""
    code, out, _ = run("best", "--size", 4, "--affinity", "pcie-switch", "dgx-1-v100")
    assert code == 0
    assert "affinity pcie-switch   no" in out


def test_best_of_one_gpu_has_nothing_to_reduce(run):
    """A single GPU is valued by what it leaves behind."""
    code, out, _ = run("best", "--size", 1, "8x-l4")
    assert code == 0
    assert "nothing to reduce with one GPU" in out


def test_one_gpu_has_no_figures(run):
    """Not 0 GB/s: no bandwidth, limit, loss or best set is to be said of it."""
    for arguments in (["dgx-1-v100", "--gpus", 3], ["--node", "dgx-1-v100:3"]):
        code, out, _ = run("value", *arguments)
        assert (code, out.count("nothing to reduce with one GPU")) == (0, 1)
        for word in ("GB/s messages", "0.0 GB/s", "limited by", "loss", "best set"):
            assert word not in out


def test_best_without_a_fitting_set_exits_1(run):
    """A script must be able to distinguish "does not fit" from "could not be read"."""
    code, out, err = run(
        "best", "--size", 4, "--affinity", "pcie-switch", "--policy", "required", "dgx-1-v100"
    )
    assert (code, err) == (1, "")
    assert "never on this node" in out


def test_best_takes_a_nic_and_a_bandwidth(run):
    """All conditions of a pod can be tried without a pod."""
    code, out, _ = run(
        "best", "--size", 2, "--nic", "required", "--min-bandwidth", 30, "--json", "dgx-1-v100"
    )
    report = json.loads(out)
    assert code == 0
    assert report["request"]["nic"] == "required"
    assert report["request"]["min_bandwidth_gbytes_per_s"] == 30


def test_rank_lists_every_set_once(run):
    """The order of preference on the empty machine, whole."""
    code, out, _ = run("rank", "--size", 2, "--json", "dgx-1-v100")
    report = json.loads(out)
    assert code == 0
    assert report["n_sets"] == len(report["sets"]) == 28
    assert [entry["rank"] for entry in report["sets"]] == list(range(1, 29))
    classes = [entry["value_class"] for entry in report["sets"]]
    assert classes == sorted(classes)


def test_rank_of_equal_sets_is_one_row(run):
    """Behind one NVSwitch fabric only PCIe tells sets apart, and twelve thousand are no answer."""
    code, out, _ = run("rank", "--size", 8, "--limit", 2, "dgx-2")
    assert code == 0
    assert "12870 sets of 8, best first; 2 of 16 groups of equal sets" in out
    assert "raw sum" not in out


def test_measured_figures_overrule_the_labels(run, bridged, tmp_path):
    """Measured beats labelled: a pair across the sockets may turn out the best."""
    (tmp_path / "m.csv").write_text("0,2,90\n0,1,10\n2,3,10\n")
    code, out, _ = run(
        "rank", "--size", 2, "--measured", tmp_path / "m.csv", "--gpu-model", "A6000", bridged
    )
    assert code == 0
    assert "raw sum" in out
    first = out.splitlines()[3].split()
    assert first[:3] == ["1", "1", "0,2"]


def test_a_measured_set_is_marked(run, bridged, tmp_path):
    """Whoever reads a figure wants to know whether it was measured."""
    (tmp_path / "m.csv").write_text("0,1,50\n0 1 2,20\n")
    for gpus, is_measured in (("0,1", True), ("0-2", True), ("1-3", False)):
        _, out, _ = run(
            "value", "--gpus", gpus, "--measured", tmp_path / "m.csv", "--json", bridged
        )
        assert json.loads(out)["is_measured"] is is_measured


@pytest.mark.parametrize("suffix", ["svg", "PNG"])
def test_draw_writes_a_picture(run, tmp_path, suffix):
    """The kind of picture follows from the name."""
    target = tmp_path / f"a.{suffix}"
    code, out, err = run(
        "draw", "--gpus", "0,3", "--gpus", "5", "--title", "mine", "-o", target, "dgx-1-v100"
    )
    assert (code, err) == (0, "")
    assert out == f"drawn: {target}, {target.stat().st_size} bytes\n"
    start = target.read_bytes()[:8]
    assert start.startswith(b"<svg" if suffix == "svg" else b"\x89PNG")


def test_recordings_lists_all(run):
    """The names that may stand for FILE."""
    code, out, _ = run("recordings")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(recording_names())


@pytest.mark.parametrize("figure", ["fast", "0", "inf", "nan"])
def test_a_bandwidth_is_a_number_above_0(run, figure):
    """Words, and numbers that no set could have."""
    code, out, err = run("best", "--size", 2, "--min-bandwidth", figure, "dgx-1-v100")
    assert (code, out) == (2, "")
    assert f"--min-bandwidth is {figure!r}, expected a number of GB/s above 0" in err


def test_a_reader_that_leaves_is_no_error(run, monkeypatch):
    """As `head` does after its lines."""

    class Left(io.StringIO):
        """A pipe without a reader."""

        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Left())
    code, _, err = run("recordings")
    sys.stdout.close()
    assert (code, err) == (0, "")


def test_output_that_cannot_be_written_is_one_sentence(run, monkeypatch):
    """A full disk below a redirection; 1 would say that no set fits."""

    class Full(io.StringIO):
        """A file without room."""

        def flush(self):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stdout", Full())
    code, _, err = run("recordings")
    sys.stdout.close()
    assert code == 3
    assert err == "error: standard output cannot be written: no space left on device\n"


def test_gain_compares_three_choices_on_a_pasted_table(run):
    """The first question of whoever has a node: what would change there."""
    code, out, _ = run("gain", "-", stdin=SMI.encode())
    assert code == 0
    assert "GPUs  random  NVIDIA  Coterie  over random  over NVIDIA" in out
    sizes = json.loads(run("gain", "--json", "-", stdin=SMI.encode())[1])["sizes"]
    assert [one["size_gpus"] for one in sizes] == [2, 4]


@pytest.mark.parametrize(
    ("link", "word"),
    [pytest.param("NV2", "at least", id="links"), pytest.param("SYS", "about", id="PCIe")],
)
def test_a_figure_of_an_unknown_model_says_so_where_it_stands(run, link, word):
    """The slowest generation is assumed, and access over PCIe: no figure of this machine."""
    text = f"        GPU0    GPU1\nGPU0     X      {link}\nGPU1    {link}     X\n".encode()
    hint = "(GPU model unknown: --gpu-model MODEL)"
    for command in (("best", "--size", 2), ("value", "--gpus", "0,1")):
        _, out, _ = run(*command, "-", stdin=text)
        assert re.search(rf"^bandwidth +{word} [0-9.]+ GB/s {re.escape(hint)}$", out, re.MULTILINE)
    assert f"GB/s at 1 GiB messages {hint}\n" in run("rank", "--size", 2, "-", stdin=text)[1]
    _, out, _ = run("best", "--size", 2, "--gpu-model", "A10", "-", stdin=text)
    assert "GPU model" not in out


def test_links_that_are_down_are_named_with_what_they_cost(run):
    """A loss against a figure that is not there, and a `-` like any other, told nobody."""
    _, out, _ = run("show", "dgx-1-v100-dead-link")
    assert "Links down\nGPU 2 has 5 of 6 links up\nGPU 6 has 5 of 6 links up\n" in out
    _, out, _ = run("value", "--gpus", "0-7", "dgx-1-v100-dead-link")
    assert "33.1 % against the best set of 8 with all links up" in out
    assert re.search(r"^with all links up +148\.7 GB/s$", out, re.MULTILINE)
    assert "all links up" not in run("value", "--gpus", "0-7", "dgx-1-v100")[1]


def test_rank_prints_ten_rows_and_groups_equal_sets(run):
    """1,820 sets are no answer; the sets of a row differ in nothing but their indices."""
    _, out, _ = run("rank", "--size", 4, "8x-mi50-pcie-2nic")
    _, every, _ = run("rank", "--size", 4, "--all", "8x-mi50-pcie-2nic")
    rows, sets = out.splitlines()[3:], every.splitlines()[3:]
    report = json.loads(run("rank", "--size", 4, "--json", "8x-mi50-pcie-2nic")[1])["sets"]
    assert len(rows) <= 10
    assert len(sets) == 70
    counts = [sum(entry["group"] == k for entry in report) for k in range(1, len(rows) + 1)]
    assert [int(row.split()[1]) for row in rows] == counts
    assert max(counts) > 1
    assert rows[0].split()[2] == sets[0].split()[1]


def test_rank_limit_is_a_number_of_rows(run):
    """Rows are groups, with --all sets, and with --json sets."""
    _, out, _ = run("rank", "--size", 2, "--limit", 3, "dgx-1-v100")
    assert len(out.splitlines()) == 3 + 3
    assert "28 sets of 2, best first; 3 of 7 groups of equal sets" in out
    _, out, _ = run("rank", "--size", 2, "--all", "--limit", 3, "dgx-1-v100")
    assert "28 sets of 2, best first; 3 of 28 sets" in out
    _, out, _ = run("rank", "--size", 2, "--json", "--limit", 3, "dgx-1-v100")
    assert len(json.loads(out)["sets"]) == 3


@pytest.mark.parametrize(
    ("arguments", "decided", "runner_up"),
    [
        (["--size", 3], "lowest indices; equal in all else", "1,2,3 with"),
        (["--size", 2, "--free", "0,1,2,4"], "GPUs closer to each other on PCIe", "with"),
        (["--size", 1, "--free", "0-2"], "future placement cost 1.00 against 1.20", ""),
        (["--size", 2, "--free", "0,3,5"], "class 0 against 2", "with"),
        (["--size", 2, "--free", "0,2,5", "--affinity", "nvlink"], "the affinity, which", "with"),
    ],
)
def test_best_names_the_runner_up_and_why(run, arguments, decided, runner_up):
    """A choice can be understood only beside what was not chosen."""
    code, out, _ = run("best", *arguments, "dgx-1-v100")
    facts = dict(line.split("  ", 1) for line in out.splitlines() if "  " in line)
    assert code == 0
    assert facts["decided by"].strip().startswith(decided)
    assert runner_up in facts["runner-up"]


def test_a_best_set_without_another_names_none(run):
    """All free GPUs are one set."""
    _, out, _ = run("best", "--size", 8, "dgx-1-v100")
    assert "runner-up" not in out


@pytest.mark.parametrize(
    ("size", "runner_up", "decided"),
    [
        (2, "2,3 with", "groups of GPUs that are filled first, such as parts of one GPU"),
        (20, "none: no other set that fits was compared", None),
    ],
)
def test_best_of_more_than_16_gpus_says_what_was_compared(run, tmp_path, size, runner_up, decided):
    """The search is bounded, so the next set is the best other one that it looked at."""
    rows = [
        "X" if i == j else "NV2" if i // 2 == j // 2 else "SYS"
        for i in range(20)
        for j in range(20)
    ]
    lines = ["\t".join(["", *(f"GPU{i}" for i in range(20))])]
    lines += ["\t".join([f"GPU{i}", *rows[20 * i : 20 * i + 20]]) for i in range(20)]
    file = tmp_path / "topo.txt"
    file.write_text("\n".join(lines) + "\n")
    code, out, _ = run("best", "--size", size, "--gpu-model", "Tesla V100-SXM2-32GB", file)
    facts = {
        k: v.strip() for k, v in (row.split("  ", 1) for row in out.splitlines() if "  " in row)
    }
    assert code == 0
    assert facts["runner-up"].startswith(runner_up)
    assert facts["compared"] == "not every set, since the machine has more than 16 GPUs"
    assert (facts.get("decided by") or "").startswith(decided or "")
    _, out, _ = run("best", "--size", size, "--json", "--gpu-model", "Tesla V100-SXM2-32GB", file)
    report = json.loads(out)
    assert report["is_every_set_compared"] is False
    assert (report["runner_up"] is None) is (decided is None)


def test_draw_to_standard_output_is_the_picture_alone(run):
    """So that it can be piped into a viewer or a page."""
    code, out, err = run("draw", "-o", "-", "summit")
    assert (code, err) == (0, "")
    assert out.startswith("<svg")
    assert out.rstrip().endswith("</svg>")


def test_show_begins_with_the_machine_and_ends_with_where_it_comes_from(run):
    """Ten lines of sources before the first GPU hide the answer."""
    out = run("show", "dgx-1-v100")[1].splitlines()
    assert out[1].split(maxsplit=1) == ["GPUs", "8 x Tesla V100-SXM2-32GB"]
    sections = [out[k + 1] for k, line in enumerate(out) if not line]
    assert sections[0] == "GPUs"
    assert sections[-1] == "Recording"
    assert out[-2].startswith("source  ")


def test_show_explains_the_labels_that_it_prints(run):
    """And no others."""
    out = run("show", "dgx-1-v100")[1].splitlines()
    start = out.index("Legend")
    labels = [line.split()[0] for line in out[start + 1 : out.index("", start)]]
    assert labels == ["X", "NV#", "-", "PIX", "PHB", "SYS", "?"]


def test_nics_that_are_not_recorded_are_unknown(run):
    """Most recordings list none, which does not say that the machine has none."""
    shown = run("show", "summit")[1].splitlines()
    assert shown[2].split() == ["NICs", "?"]
    assert "NICs" in shown[shown.index("Unknown") :]
    facts = run("value", "--gpus", "0,1", "summit")[1]
    assert facts.splitlines()[-1].split()[-1] == "?"
    assert json.loads(run("show", "--json", "summit")[1])["machine"]["n_nics"] is None
    listed = {line.split()[0]: line.split()[-1] for line in run("recordings")[1].splitlines()}
    assert (listed["summit"], listed["dgx-1-v100"]) == ("?", "4")


# --- This machine -------------------------------------------------------------------------------


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Put a program called nvidia-smi on an otherwise empty PATH; give its script's writer."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(script):
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return write


def test_without_file_it_is_this_machine(run, smi, tmp_path):
    """As lstopo does; standard error says where the facts come from."""
    (tmp_path / "topo").write_text(SMI)
    listed = "\n".join(f"GPU {k}: NVIDIA RTX A6000 (UUID: GPU-{k:08d})" for k in range(4))
    smi(
        f'if [ "$1" = -L ]; then echo \'{listed}\'; else while read -r l; do echo "$l"; done'
        f" < {tmp_path}/topo; fi"
    )
    code, out, err = run("show")
    assert (code, err) == (0, "no FILE: this machine, as nvidia-smi shows it\n")
    assert out.splitlines()[:2] == ["this machine", "GPUs           4 x NVIDIA RTX A6000"]
    assert "nvidia-smi -L and nvidia-smi topo -m on this machine" in out
    assert json.loads(run("best", "--size", 2, "--json")[1])["selected"]["gpus"] == [0, 1]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "this machine has no nvidia-smi"),
        ("echo 'driver is not loaded'; exit 9", "exited 9 ('driver is not loaded')"),
    ],
)
def test_a_machine_that_cannot_be_read_gets_the_next_step(run, smi, script, said):
    """Most laptops have no NVIDIA driver."""
    if script is not None:
        smi(script)
    code, out, err = run("show")
    assert (code, out) == (3, "")
    assert said in err
    assert "give FILE, such as a shipped machine" in err
    assert err.count("\n") == 1


def test_nvidia_smi_that_hangs_is_given_up(run, smi, monkeypatch):
    """As it does beside a GPU that fell off its bus."""
    smi("while :; do :; done")
    monkeypatch.setattr(this_machine, "TIMEOUT_S", 0.1)
    code, out, err = run("show")
    assert (code, out) == (3, "")
    assert "nvidia-smi -L did not end within 0.1 s; give FILE" in err


def test_nvidia_smi_that_cannot_be_run_names_the_fault(run, smi):
    """A program for another architecture, say."""
    smi("")
    program = Path(os.environ["PATH"]) / "nvidia-smi"
    program.write_bytes(b"\x7fELF")
    code, out, err = run("show")
    assert (code, out) == (3, "")
    assert "nvidia-smi -L cannot be run: " in err


# --- Where FILE comes from ----------------------------------------------------------------------


def test_dash_is_standard_input(run):
    """So that `nvidia-smi topo -m | coterie-topology show -` works on any machine."""
    code, out, _ = run("show", "-", stdin=SMI.encode())
    assert code == 0
    assert out.startswith("4 GPUs\n")


def test_a_single_gpu_has_no_matrix(run):
    """Nothing is said about pairs where there are none."""
    code, out, _ = run(
        "show", "-", stdin=b"        GPU0    NIC0\nGPU0     X      PIX\nNIC0    PIX     X\n"
    )
    assert code == 0
    assert "Accelerator links" not in out


def test_an_unknown_fact_is_a_question_mark(run, monkeypatch):
    """Unknown is neither zero nor nearest."""
    level, own = PcieLevel.UNKNOWN, PcieLevel.SELF
    dark = NodeTopology(
        gpus=(Gpu(), Gpu()),
        links=((NO_LINK, UNKNOWN_LINK), (UNKNOWN_LINK, NO_LINK)),
        pcie=((own, level), (level, own)),
        nics=(Nic("eth0", (level, level)),),
    )
    monkeypatch.setattr(reading, "recording_names", lambda: ("dark",))
    monkeypatch.setattr(reading, "load_recording", lambda _name: dark)
    rows = run("show", "dark")[1].splitlines()
    assert rows[rows.index("Accelerator links") + 2].split() == ["GPU0", "X", "?"]
    assert rows[rows.index("PCIe levels") + 2].split() == ["GPU0", "X", "?", "?"]
    assert rows[rows.index("NICs") + 2].split() == ["eth0", "?", "?", "?", "?", "?"]
    assert rows[rows.index("Unknown") + 1 :][:3] == [
        "model of the GPU: all 2 GPUs",
        "NUMA node: all 2 GPUs",
        "accelerator link: all 1 pairs",
    ]


def test_links_are_named_as_nvidia_smi_does(run, bridged):
    """NV4 is what people know; a dash is where there surely is none."""
    rows = run("show", bridged)[1].splitlines()
    assert rows[rows.index("Accelerator links") + 2].split() == ["GPU0", "X", "NV4", "-", "-"]


def test_a_file_names_its_machine(run, bridged):
    """A picture or table without a name is hard to distinguish from another."""
    assert run("show", bridged)[1].startswith("bridged\n")


def test_format_skips_the_detection(run, bridged):
    """A text that looks like something else can still be read."""
    assert run("show", "--format", FileFormat.SMI.value, bridged)[0] == 0


# --- Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(
            ["show", "nowhere.txt"],
            3,
            "'nowhere.txt' is neither a file nor a shipped machine (see `recordings`)\n",
            id="no such file",
        ),
        pytest.param(
            ["show", "DGX-1-V10"],
            3,
            "(see `recordings`); near names: dgx-1-v100, dgx-1-p100, dgx-h100\n",
            id="nearly a shipped machine",
        ),
        pytest.param(["show", "."], 3, "'.' cannot be read: is a directory\n", id="a folder"),
        pytest.param(["show", "a\0b"], 3, "neither a file nor", id="a name that no file can have"),
        pytest.param(
            ["show", "-"], 3, "no recording that can be read: it is empty", id="nothing on stdin"
        ),
        pytest.param(["show", "--format", "nccl-xml", "{file}"], 3, "XML", id="another format"),
        pytest.param(
            ["show", "--gpu-model", "NVIDIA A100-SXM4-80GB", "summit"],
            2,
            "summit is a shipped machine, expected no --gpu-model",
            id="a shipped machine knows its model",
        ),
        pytest.param(
            ["show", "--format", "recording", "summit"],
            2,
            "summit is a shipped machine",
            id="a shipped machine knows its format",
        ),
        pytest.param(
            ["show", "--json", "--annotation", "summit"], 2, "exclude each other", id="two outputs"
        ),
        pytest.param(
            ["show", "--measured", "{file}", "summit"],
            3,
            "measurement line 1 is",
            id="no measurement",
        ),
        pytest.param(
            ["show", "--measured", "nowhere.txt", "summit"],
            3,
            "'nowhere.txt' cannot be read: no such file or directory\n",
            id="no file of measurements",
        ),
        pytest.param(
            ["show", "--measured", "{pair}", "8x-l4"],
            3,
            "GPU 9 is not there, expected 0..7",
            id="measured on another machine",
        ),
        pytest.param(
            ["value", "--gpus", "0,8", "8x-l4"],
            2,
            "set: GPU 8 is not there, expected 0..7",
            id="a GPU too many",
        ),
        pytest.param(
            ["value", "--gpus", "", "8x-l4"], 2, "--gpus is '', expected GPU indices", id="empty"
        ),
        pytest.param(
            ["value", "--gpus", "0,x", "8x-l4"], 2, "expected GPU indices", id="no number"
        ),
        pytest.param(
            ["value", "--gpus", "3-1", "8x-l4"], 2, "expected the lower index first", id="backwards"
        ),
        pytest.param(
            ["best", "--size", "2", "--free", "1,1,3", "8x-l4"],
            2,
            "--free is '1,1,3', which names GPU 1 twice, expected it once",
            id="a free GPU twice",
        ),
        pytest.param(
            ["value", "--gpus", "0-3,2", "8x-l4"], 2, "names GPU 2 twice", id="in a range too"
        ),
        pytest.param(
            ["value", "--gpus", "0-99999", "8x-l4"], 2, "expected GPU indices", id="huge range"
        ),
        pytest.param(
            ["best", "--size", "2", "--free", "8", "8x-l4"],
            2,
            "free set: GPU 8 is not there",
            id="free GPU",
        ),
        pytest.param(
            ["best", "--size", "2", "--must-include", "9", "8x-l4"],
            2,
            "must-include set: GPU 9 is not there",
            id="must-include GPU",
        ),
        pytest.param(
            ["best", "--size", "2", "--min-bandwidth", "-1", "8x-l4"],
            2,
            "--min-bandwidth is '-1', expected a number of GB/s above 0",
            id="negative bandwidth",
        ),
        pytest.param(
            ["best", "--size", "1", "--min-bandwidth", "5", "8x-l4"],
            2,
            "one has nothing to reduce",
            id="bandwidth of one GPU",
        ),
        pytest.param(
            ["paint"], 2, "COMMAND is 'paint', expected one of gain, ", id="no such command"
        ),
        pytest.param(
            ["best", "8x-l4"], 2, "are required: --size (see coterie-topology best", id="no size"
        ),
        pytest.param(
            ["show", "--color"],
            2,
            "unrecognized arguments: --color (see coterie-topology show --help)",
            id="no option",
        ),
        pytest.param(
            ["best", "--size", "0", "8x-l4"],
            2,
            "--size is '0', expected a whole number of 1 or more",
            id="size 0",
        ),
        pytest.param(
            ["best", "--size", "2", "--affinity", "nvlnk", "8x-l4"],
            2,
            "--affinity is 'nvlnk', expected one of any, nvlink, pcie-switch, numa, none; "
            "nearest: nvlink\n",
            id="misspelt",
        ),
        pytest.param(
            ["show", "--format", "x", "8x-l4"], 2, "--format is 'x', expected", id="no such format"
        ),
        pytest.param(
            ["show", "--gpu-model", "H10O", "-"],
            2,
            "--gpu-model is 'H10O', which is not known; near names: NVIDIA H100 80GB HBM3, ",
            id="no such GPU model",
        ),
        pytest.param(
            ["show", "--format", "nvidia-smi"], 2, "--format without FILE", id="format of nothing"
        ),
        pytest.param(["value", "--gpus", "0,0", "8x-l4"], 2, "names GPU 0 twice", id="GPU 0 twice"),
        pytest.param(["rank", "--size", "9", "8x-l4"], 2, "expected 1..8", id="size above n"),
        pytest.param(["best", "--size", "9", "8x-l4"], 2, "size is 9, expected 1..8", id="too big"),
        pytest.param(
            ["draw", "-o", "a.pdf", "8x-l4"],
            2,
            "--output is 'a.pdf', expected a name in .svg or .png, or -",
            id="another kind of picture",
        ),
        pytest.param(
            ["best", "--size", "2", "g" * 300],
            3,
            "cannot be read: file name too long",
            id="a long name",
        ),
        pytest.param(
            ["draw", "-o", "/nowhere/a.svg", "8x-l4"], 3, "cannot be written", id="no such folder"
        ),
        pytest.param(
            ["draw", "-o", "a.svg", "--gpus", "8", "8x-l4"], 2, "GPU 8 is not there", id="drawn set"
        ),
    ],
)
def test_errors_are_one_sentence_and_a_code(run, bridged, tmp_path, arguments, code, message):
    """No traceback, nothing on standard output, and a code that a script can act on."""
    (tmp_path / "pair.csv").write_text("0,9,5")
    places = {"{file}": str(bridged), "{pair}": str(tmp_path / "pair.csv")}
    found, out, err = run(*(places.get(argument, argument) for argument in arguments))
    assert (found, out) == (code, "")
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Value error" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no command"),
        pytest.param(["paint"], id="no such command"),
        pytest.param(["show", "--color", "summit"], id="no such option"),
        pytest.param(["best", "--size", "0", "summit"], id="size 0"),
        pytest.param(["best", "--size", "2.5", "summit"], id="fractional size"),
        pytest.param(["best", "--size", "2", "--affinity", "nvlnk", "summit"], id="misspelt"),
        pytest.param(["show", "--format", "pdf", "summit"], id="no such format"),
    ],
)
def test_wrong_usage_exits_2(run, arguments):
    """Wrong usage is distinguished from a file that cannot be read."""
    assert run(*arguments)[0] == 2


def test_help_names_the_exit_codes(run):
    """Whoever writes a script looks there."""
    code, out, _ = run("--help")
    assert code == 0
    assert "Exit codes" in out


def test_a_huge_file_is_refused_unread(run, tmp_path, monkeypatch):
    """A device or a log of gigabytes must not fill the memory."""
    monkeypatch.setattr(reading, "MAX_BYTES", 10)
    (tmp_path / "big").write_text("x" * 11)
    code, _, err = run("show", tmp_path / "big")
    assert code == 3
    assert "more than 10 bytes" in err


def test_the_version(run):
    """What a bug report names."""
    assert run("--version") == (0, f"coterie-topology {version()}\n", "")


def test_without_matplotlib_drawing_exits_4(run, tmp_path, monkeypatch):
    """The extra is optional, and its absence explains itself."""
    monkeypatch.setitem(sys.modules, "topology.draw.render", None)
    code, _, err = run("draw", "-o", tmp_path / "a.svg", "summit")
    assert code == 4
    assert err.startswith("error: ")


def test_terminal_codes_in_a_file_are_not_printed(run, tmp_path):
    """A recording from outside must not drive the terminal."""
    path = tmp_path / "a.txt"
    path.write_text("GPU0 X NV4\nGPU1 NV4 X\x1b]0;owned\x07\n")
    for arguments in (["show", path], ["show", "--gpu-model", "A100\x1b[31m", "-"]):
        _, out, err = run(*arguments, stdin=SMI.encode())
        assert "\x1b" not in out + err


# --- Bigger nodes, other machines ---------------------------------------------------------------


@pytest.fixture
def big(tmp_path):
    """Keep a machine of 20 GPUs in a file: above what tables hold."""
    path = tmp_path / "big.csv"
    rows = [["X" if i == j else "NV18" for j in range(20)] for i in range(20)]
    path.write_text("\n".join(" ".join(row) for row in rows))
    return path


def test_nodes_above_16_gpus_are_answered(run, big):
    """A rack-scale NVLink domain has 72."""
    assert json.loads(run("best", "--size", 4, "--json", big)[1])["selected"]["gpus"]
    value = json.loads(run("value", "--gpus", "0,19", "--json", big)[1])
    assert value["value_gbytes_per_s"] > 0


@pytest.mark.parametrize("command", ["rank", "measured"])
def test_what_tables_alone_can_answer_is_refused_above_16_gpus(run, big, tmp_path, command):
    """Two to the twentieth sets are no list, and measurements do not enter such nodes."""
    (tmp_path / "m.csv").write_text("0,1,50")
    arguments = {
        "rank": ["rank", "--size", 2, big],
        "measured": ["value", "--gpus", "0,1", "--measured", tmp_path / "m.csv", big],
    }[command]
    code, _, err = run(*arguments)
    assert code == 2
    assert "20 GPUs, expected at most 16" in err


def test_a_set_of_mixed_models_has_a_value_but_no_affinity(run, monkeypatch):
    """Such a set is given to pods that do not care, so its value must be shown."""
    off = ((NO_LINK, NO_LINK), (NO_LINK, NO_LINK))
    pix, own = PcieLevel.PIX, PcieLevel.SELF
    mixed = NodeTopology(
        gpus=(Gpu(model="Tesla T4"), Gpu(model="NVIDIA L4")),
        links=off,
        pcie=((own, pix), (pix, own)),
        nics=(Nic("mlx5_0", (pix, pix), is_rdma=True),),
    )
    monkeypatch.setattr(reading, "recording_names", lambda: ("mixed",))
    monkeypatch.setattr(reading, "load_recording", lambda _name: mixed)
    report = json.loads(run("value", "--gpus", "0,1", "--json", "mixed")[1])
    assert report["best_gpus"] is None
    assert report["best_value_gbytes_per_s"] is None
    assert report["value_gbytes_per_s"] > 0
    assert not report["has_switch"]
    assert (report["is_known"], report["has_nic"]) == (True, True)
    assert "best set of 2" not in run("value", "--gpus", "0,1", "mixed")[1]


@pytest.mark.parametrize("arguments", [["--help"], ["best", "--help"], ["show", "{file}"]])
def test_what_values_no_set_loads_no_numpy(bridged, arguments):
    """A command line that takes a second to start is not used; numpy takes most of it."""
    words = [str(bridged) if word == "{file}" else word for word in arguments]
    script = (
        "import sys; from topology.cli.commands import main\n"
        f"try: main({words!r})\n"
        "except SystemExit as end: assert not end.code\n"
        "print({name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(commands.__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = done.stdout.splitlines()[-1]
    for name in ("numpy", "networkx", "matplotlib", "subprocess", "rich", "typer", "pydantic"):
        assert f"'{name}'" not in loaded


def test_the_module_runs_as_a_program():
    """`python -m topology` is the documented way without an installed script."""
    done = subprocess.run(
        [sys.executable, "-m", "topology", "best", "--size", "2", "summit"],
        cwd=Path(commands.__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "best set" in done.stdout
