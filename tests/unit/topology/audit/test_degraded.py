"""GPUs with links down, by their equals on the node."""

import pytest

from tests.machines import NVLINK, machine
from topology.audit.degraded import find_degraded
from topology.model import AcceleratorLink, Gpu, LinkKind, SwitchFabric
from topology.recordings import load_recording, recording_names

DEGRADED = {
    "8x-b200-gpu2-no-nvlink": [(2, 0, 18)],
    "dgx-1-v100-dead-link": [(2, 5, 6), (6, 5, 6)],
    "dgx-h100-lost-links": [(5, 16, 18)],
}
V100 = Gpu(model="Tesla V100-SXM2-32GB")


def found(topology):
    """GPU, links up and links expected."""
    return [(one.gpu, one.n_links, one.n_expected) for one in find_degraded("n1", topology)]


@pytest.mark.parametrize("name", recording_names())
def test_shipped_machines(name):
    """Machines that are wired with fewer links than their GPUs have are not taken for degraded."""
    assert found(load_recording(name)) == DEGRADED.get(name, [])


def test_a_fabric_that_is_down():
    """None of its members has a link, whatever their ports count."""
    fabric = SwitchFabric(((0, 18), (1, 18)), is_up=False)
    assert found(machine([Gpu(), Gpu()], fabrics=[fabric])) == [(0, 0, 18), (1, 0, 18)]
    unknown = SwitchFabric(((0, 0), (1, 0)), is_up=False)
    assert found(machine([Gpu(), Gpu()], fabrics=[unknown])) == [(0, 0, 0), (1, 0, 0)]


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(machine([V100] * 4, links={(0, 1): NVLINK(6)}), id="half the GPUs or fewer"),
        pytest.param(
            machine([V100] * 3, links={(0, 1): AcceleratorLink(LinkKind.NVLINK, None)}),
            id="links of unknown count",
        ),
        pytest.param(machine([Gpu(model="NVIDIA L4")] * 2), id="a model without links"),
        pytest.param(machine([Gpu(model="some GPU")] * 2), id="a model that is not known"),
        pytest.param(machine([Gpu()] * 2), id="no model"),
    ],
)
def test_what_is_not_known_is_not_degraded(topology):
    """Nothing says that these links should be up."""
    assert found(topology) == []
