"""A lane of the cluster tests runs again when anything that it uses has changed."""

from __future__ import annotations

import pytest

from tests.cluster.lanes import stamp_of


@pytest.fixture
def write(tmp_path):
    """Writes a file of a small checkout with one lane."""
    files = {
        "tests/cluster/conftest.py": "",
        "tests/cluster/__main__.py": "",
        "requirements/dev.txt": "one==1\n",
        "tests/cluster/modules/one/go.mod": "module one\n",
        "tests/cluster/of_harness/test_it.py": "from tests.cluster.node import real\n",
        "tests/cluster/node/real.py": "import topology.model\n",
        "topology/model/__init__.py": "from topology.model.links import LINKS\n",
        "topology/model/links.py": "LINKS = 1\n",
        "topology/draw.py": "",
    }

    def write_file(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    for path, text in files.items():
        write_file(path, text)
    return write_file


@pytest.mark.parametrize(
    ("path", "is_used"),
    [
        pytest.param("tests/cluster/of_harness/test_it.py", True, id="a test"),
        pytest.param("tests/cluster/of_harness/test_new.py", True, id="a new test"),
        pytest.param("tests/cluster/conftest.py", True, id="fixtures"),
        pytest.param("tests/cluster/node/real.py", True, id="a module of the harness"),
        pytest.param("topology/model/links.py", True, id="what that imports through a package"),
        pytest.param("tests/cluster/modules/one/go.mod", True, id="a version"),
        pytest.param("requirements/dev.txt", True, id="a locked package"),
        pytest.param("topology/draw.py", False, id="a module that it does not import"),
        pytest.param("tests/cluster/of_node/test_other.py", False, id="a test of another folder"),
    ],
)
def test_the_stamp_follows_what_the_lane_uses(tmp_path, write, path, is_used):
    """A lane that is skipped must have passed with this very content."""
    before = stamp_of("of_harness", "1.36", tmp_path)
    write(path, "CHANGED = 2\n")
    assert (stamp_of("of_harness", "1.36", tmp_path) != before) == is_used


@pytest.mark.usefixtures("write")
def test_each_version_of_kubernetes_has_its_own_stamp(tmp_path):
    """A lane that passed on one may fail on another."""
    older, newer = (stamp_of("of_harness", minor, tmp_path) for minor in ("1.35", "1.36"))
    assert older != newer
