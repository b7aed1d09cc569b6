"""The openb trace: what is kept, what is dropped and counted, and what stands for a node."""

from __future__ import annotations

import pytest

from benchmarks.errors import BadData, MissingData
from benchmarks.fleet.trace import RECORDINGS, cut_topology, load_nodes, load_pods, recording_of
from topology.recordings import load_recording

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"


def test_whole_gpu_pods_are_kept_and_fractional_ones_counted(tmp_path):
    """1000 thousandths per GPU is whole; a pod without GPUs stays."""
    path = tmp_path / "pods.csv"
    path.write_text(PODS + "a,1,2,1,1000,3,4\nb,1,2,1,460,3,4\nc,1,2,0,0,3,4\nd,1,2,8,1000,3,4\n")
    loaded = load_pods(path)
    assert [(p.name, p.n_gpus) for p in loaded.pods] == [("a", 1), ("c", 0), ("d", 8)]
    assert (loaded.n_fractional, loaded.pods[0].created_s, loaded.pods[0].deleted_s) == (1, 3, 4)
    assert loaded.first(1).pods == loaded.pods[:1]


def test_an_untimed_trace_has_no_times(tmp_path):
    """The multi-GPU variant has no columns of time."""
    path = tmp_path / "pods.csv"
    path.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,2,1,1000\n")
    assert load_pods(path).pods[0].created_s is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("name,cpu_milli\n", r"columns \['gpu_milli'", id="columns are missing"),
        pytest.param(PODS + "a,x,2,1,1000,3,4\n", "cpu_milli is 'x'", id="not a number"),
    ],
)
def test_refuses_what_is_no_trace(tmp_path, text, message):
    """The message names the file and what is wrong."""
    path = tmp_path / "pods.csv"
    path.write_text(text)
    with pytest.raises(BadData, match=message):
        load_pods(path)


def test_a_missing_trace_says_how_to_name_the_folder(tmp_path):
    """The message names the path and the option."""
    with pytest.raises(MissingData, match="--shared"):
        load_pods(tmp_path / "none.csv")


def test_refuses_a_gpu_model_without_a_recording(tmp_path):
    """Every model of the node list needs a machine that stands for it."""
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1,2,8,G3\nm,1,2,8,Z9\n")
    with pytest.raises(BadData, match=r"\['Z9'\]"):
        load_nodes(path)


@pytest.mark.parametrize("model", sorted(RECORDINGS))
def test_every_model_has_a_recording(model):
    """The map names machines that ship."""
    assert recording_of(model, 2).n_gpus == 2


def test_a_cut_machine_keeps_what_its_gpus_share():
    """The first two GPUs of a DGX A100 keep fabric ports and NIC levels; the rest is gone."""
    whole = load_recording("dgx-a100")
    cut = cut_topology(whole, 2)
    assert cut.fabrics[0].ports == whole.fabrics[0].ports[:2]
    assert cut.links[0][1] == whole.links[0][1]
    assert {len(nic.levels) for nic in cut.nics} <= {2}
    assert recording_of("G3", 8) is whole
