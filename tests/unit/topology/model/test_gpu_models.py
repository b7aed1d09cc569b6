"""What product names say about links: each name in the row it belongs to."""

import pytest

from topology.model import GA102_GENERATION, GPU_MODEL_NAMES, LinkKind, P2pAccess, find_gpu_model

NVLINK, XGMI, NONE = LinkKind.NVLINK, LinkKind.XGMI, LinkKind.NONE
YES, NO = P2pAccess.YES, P2pAccess.NO


@pytest.mark.parametrize(
    ("name", "kind", "generation", "links", "pcie", "p2p"),
    [
        ("Tesla P100-SXM2-16GB", NVLINK, 1, 4, 3, YES),
        ("Tesla P100-PCIE-16GB", NONE, None, 0, 3, YES),
        ("Tesla V100-SXM2-32GB", NVLINK, 2, 6, 3, YES),
        ("Tesla V100-SXM3-32GB", NVLINK, 2, 6, 3, YES),
        ("Tesla V100-PCIE-16GB", NONE, None, 0, 3, YES),
        ("Quadro RTX 8000", NVLINK, 2, 2, 3, YES),
        ("Tesla T4", NONE, None, 0, 3, YES),
        ("NVIDIA A100-SXM4-80GB", NVLINK, 3, 12, 4, YES),
        ("NVIDIA A100 80GB PCIe", NVLINK, 3, 12, 4, YES),
        ("NVIDIA A800-SXM4-80GB", NVLINK, 3, 8, 4, YES),
        ("NVIDIA A30", NVLINK, 3, 4, 4, YES),
        ("NVIDIA A10G", NONE, None, 0, 4, YES),
        ("NVIDIA A40", NVLINK, GA102_GENERATION, 4, 4, YES),
        ("NVIDIA RTX A6000", NVLINK, GA102_GENERATION, 4, 4, YES),
        ("NVIDIA RTX A4500", NVLINK, GA102_GENERATION, 4, 4, YES),
        ("NVIDIA RTX A4000", NONE, None, 0, 4, YES),
        ("NVIDIA RTX A2000 12GB", NONE, None, 0, 4, YES),
        ("NVIDIA GeForce RTX 3090", NVLINK, GA102_GENERATION, 4, 4, NO),
        ("NVIDIA GeForce RTX 3080 Ti", NONE, None, 0, 4, NO),
        ("NVIDIA GeForce RTX 4090", NONE, None, 0, 4, NO),
        ("NVIDIA GeForce RTX 5090", NONE, None, 0, 5, NO),
        ("NVIDIA RTX 6000 Ada Generation", NONE, None, 0, 4, YES),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", NONE, None, 0, 5, YES),
        ("NVIDIA L40S", NONE, None, 0, 4, YES),
        ("NVIDIA L4", NONE, None, 0, 4, YES),
        ("NVIDIA H100 80GB HBM3", NVLINK, 4, 18, 5, YES),
        ("NVIDIA H100 PCIe", NVLINK, 4, 12, 5, YES),
        ("NVIDIA H100 NVL", NVLINK, 4, 18, 5, YES),
        ("NVIDIA H800", NVLINK, 4, 8, 5, YES),
        ("NVIDIA H20", NVLINK, 4, 18, 5, YES),
        ("NVIDIA H200", NVLINK, 4, 18, 5, YES),
        ("NVIDIA GH200 480GB", NVLINK, 4, 18, 5, YES),
        ("NVIDIA B200", NVLINK, 5, 18, 5, YES),
        ("NVIDIA GB200", NVLINK, 5, 18, 5, YES),
        ("AMD Instinct MI50", XGMI, 1, 2, 4, YES),
        ("AMD Instinct MI100", XGMI, 2, 3, 4, YES),
        ("AMD Instinct MI250X", XGMI, 3, 8, 4, YES),
        ("AMD Instinct MI300X", XGMI, 4, 7, 5, YES),
    ],
)
def test_a_product_has_its_own_facts(name, kind, generation, links, pcie, p2p):
    """Neighbouring names (A4000 and A4500, RTX A6000 and 6000 Ada) must not meet in one row."""
    row = find_gpu_model(name)
    assert row is not None
    assert (row.link_kind, row.link_generation, row.links_per_gpu) == (kind, generation, links)
    assert (row.pcie_generation, row.p2p) == (pcie, p2p)
    assert row.source


@pytest.mark.parametrize("name", [None, "", "some accelerator", "Tesla X9000", "Radeon VIII"])
def test_an_unknown_name_is_no_product(name):
    """Facts of an unknown product stay unknown."""
    assert find_gpu_model(name) is None


@pytest.mark.parametrize("name", ["tesla v100-sxm2-32gb", "TESLA V100-SXM2-32GB"])
def test_case_does_not_count(name):
    """Importers meet both spellings."""
    assert find_gpu_model(name) == find_gpu_model("Tesla V100-SXM2-32GB")


def test_names_that_messages_propose_are_known():
    """A proposal that is refused in turn would be worse than none."""
    assert [name for name in GPU_MODEL_NAMES if find_gpu_model(name) is None] == []
