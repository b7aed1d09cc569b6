"""What of packages the images leave out; that nothing is missing, tests/cluster shows."""

from __future__ import annotations

import pytest

from deploy.release.content import (
    BASE_UNUSED,
    DEPENDENCIES_UNUSED,
    OWN_UNUSED,
    is_unused,
    pruned,
)
from deploy.release.oci import File


@pytest.mark.parametrize(
    ("patterns", "path", "unused"),
    [
        pytest.param(BASE_UNUSED, "usr/share/doc/libc6/changelog.gz", True, id="changelogs"),
        pytest.param(BASE_UNUSED, "usr/share/doc/libc6/copyright", False, id="licences stay"),
        pytest.param(BASE_UNUSED, "usr/sbin/tzconfig", True, id="scripts of a shell"),
        pytest.param(BASE_UNUSED, "usr/lib/python3.13/ensurepip/x.py", True, id="pip's installer"),
        pytest.param(BASE_UNUSED, "usr/lib/python3.13/json/x.py", False, id="the library stays"),
        pytest.param(DEPENDENCIES_UNUSED, "bin/uvicorn", True, id="scripts with a foreign path"),
        pytest.param(DEPENDENCIES_UNUSED, "a-1.dist-info/RECORD", True, id="how it was installed"),
        pytest.param(DEPENDENCIES_UNUSED, "a-1.dist-info/METADATA", False, id="what it is stays"),
        pytest.param(
            DEPENDENCIES_UNUSED, "a-1.dist-info/licenses/LICENSE", False, id="its licence stays"
        ),
        pytest.param(DEPENDENCIES_UNUSED, "kubernetes/client/a.py", True, id="unused client"),
        pytest.param(
            DEPENDENCIES_UNUSED, "kubernetes/aio/client/rest.py", False, id="used transport"
        ),
        pytest.param(
            DEPENDENCIES_UNUSED,
            "kubernetes/aio/client/models/__init__.py",
            False,
            id="the package of lazily imported models",
        ),
        pytest.param(
            DEPENDENCIES_UNUSED, "kubernetes/aio/client/models/v1_pod.py", True, id="models"
        ),
        pytest.param(DEPENDENCIES_UNUSED, "numpy/linalg/tests/a.py", True, id="numpy's tests"),
        pytest.param(DEPENDENCIES_UNUSED, "numpy/testing/__init__.py", False, id="not testing"),
        pytest.param(OWN_UNUSED, "topology/draw/render.py", True, id="drawing needs matplotlib"),
        pytest.param(
            OWN_UNUSED, "topology/draw/layout.py", False, id="the read API has the layout"
        ),
        pytest.param(OWN_UNUSED, "topology/cli/program.py", False, id="programs start with it"),
        pytest.param(OWN_UNUSED, "kube/__pycache__/log.cpython-311.pyc", True, id="byte code"),
        pytest.param(OWN_UNUSED, "topology/recordings/dgx-h100.toml", False, id="data stay"),
    ],
)
def test_what_is_left_out(patterns, path, unused):
    """By path; the last pattern that matches decides."""
    assert is_unused(path, patterns) is unused


def test_a_tree_is_pruned_by_its_paths():
    """And keeps what is left as it was."""
    tree = {"a/x.pyi": File(b""), "a/x.py": File(b"1")}
    assert pruned(tree, ("*.pyi",)) == {"a/x.py": File(b"1")}
