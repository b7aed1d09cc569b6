"""The demo's pods: a seeded mix in the form in which kube-scheduler has them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.demo.fleet import lay_out_fleet, list_products
from benchmarks.demo.pods import MOST_REQUIRED, PRODUCT_LABEL, DemoPod, draw_pods
from extender.protocol import WirePod, parse_pod
from topology.annotations import Affinity, Strength

MIX = draw_pods(2000, seed=3)


def test_the_seed_decides_everything():
    """A demo that is run again shows the same pods."""
    assert draw_pods(50, seed=1) == draw_pods(50, seed=1)
    assert draw_pods(50, seed=1) != draw_pods(50, seed=2)


def test_every_size_and_affinity_occurs():
    """Sizes 1 to 8, every affinity, absent and required ones."""
    assert Counter(pod.size for pod in MIX).keys() == set(range(1, 9))
    assert {pod.affinity for pod in MIX} == {None, "nvlink", "numa", "pcie-switch", "none"}
    required = [pod for pod in MIX if pod.is_required]
    assert 0.05 < len(required) / len(MIX) < 0.3
    assert all(pod.size <= MOST_REQUIRED[str(pod.affinity)] for pod in required)


@pytest.mark.parametrize("pod", MIX[:12], ids=lambda pod: pod.name)
def test_the_extender_reads_the_pod_as_it_was_meant(pod):
    """Size and annotations come back from the wire form."""
    request = parse_pod(WirePod.model_validate(pod.as_json()), ("nvidia.com/gpu",))
    assert (request.uid, request.full_name) == (pod.uid, f"demo/{pod.name}")
    assert request.size_gpus == pod.size
    assert request.shape is not None
    assert request.shape.policy == pod.policy
    assert request.shape.policy.affinity is Affinity(pod.affinity or "any")
    assert (request.shape.policy.strength is Strength.REQUIRED) is pod.is_required
    assert request.warnings == ()


@pytest.mark.parametrize(
    ("size", "affinity", "required", "wish", "is_judged"),
    [
        pytest.param(1, None, False, "best set", False, id="one GPU has nothing to reduce"),
        pytest.param(2, None, False, "best set", True, id="absent means the best set"),
        pytest.param(4, "nvlink", True, "nvlink, required", True, id="a level is judged"),
        pytest.param(4, "none", False, "none", False, id="none does not care"),
    ],
)
def test_what_is_judged(size, affinity, required, wish, is_judged):
    """Bandwidth is judged where the owner wants it."""
    pod = DemoPod(name="p", uid="u", size=size, affinity=affinity, is_required=required)
    assert (pod.wish, pod.is_judged) == (wish, is_judged)


PRODUCTS = list_products(lay_out_fleet().values())
NAMED_MIX = draw_pods(2000, seed=3, products=PRODUCTS)


def test_most_pods_name_a_gpu_model():
    """As users of mixed fleets do; a few take any."""
    named = [pod.product for pod in NAMED_MIX if pod.product is not None]
    assert 0.8 < len(named) / len(NAMED_MIX) < 0.9
    assert set(named) == {product.name for product in PRODUCTS}


def test_a_pod_asks_of_a_model_only_what_its_machines_have():
    """No pod waits for ever, and no rival is blamed for a level that the machine lacks."""
    largest = {product.name: product.largest for product in PRODUCTS}
    for pod in NAMED_MIX:
        if pod.product is not None:
            assert pod.size <= largest[pod.product]["any"]
            if pod.affinity not in {None, "none"}:
                assert pod.size <= largest[pod.product][str(pod.affinity)]
        assert not pod.is_required or pod.affinity not in {None, "none"}


def test_the_model_is_a_node_selector():
    """The label of NVIDIA's gpu-feature-discovery; without a model there is no selector."""
    named = DemoPod(name="p", uid="u", size=2, product="NVIDIA-L40S")
    assert named.as_json()["spec"]["nodeSelector"] == {PRODUCT_LABEL: "NVIDIA-L40S"}
    assert DemoPod(name="p", uid="u", size=2).as_json()["spec"]["nodeSelector"] == {}


def test_products_say_what_a_fleet_has():
    """Models are spelt as labels; the largest set of each level over their machines."""
    (bridged, l40s) = list_products(lay_out_fleet("2x 8x-a6000-bridged, 1x 4x-l40s").values())
    assert (bridged.name, bridged.n_gpus) == ("NVIDIA-RTX-A6000", 16)
    assert bridged.largest == {"any": 8, "nvlink": 2, "pcie-switch": 4, "numa": 4}
    assert (l40s.largest["any"], l40s.largest["nvlink"]) == (4, 0)
