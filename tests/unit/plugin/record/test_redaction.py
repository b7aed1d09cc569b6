"""What is replaced before a bundle is written, and what stays."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.record.redaction import Redaction

ONE = "6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e01"
TWO = "6D1C4A90-0F0E-4F3B-9D2A-3C1F5A7B9E02"
ZERO = "00000000-0000-0000-0000-000000000000"
FIRST = "00000000-0000-8000-8000-000000000001"
SECOND = "00000000-0000-8000-8000-000000000002"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"GPU-{ONE}", f"GPU-{FIRST}", id="the prefix stays"),
        pytest.param(f"MIG-GPU-{ONE}/1/0", f"MIG-GPU-{FIRST}/1/0", id="a MIG device of old"),
        pytest.param(f"{ONE} {TWO} {ONE}", f"{FIRST} {SECOND} {FIRST}", id="the same everywhere"),
        pytest.param(f"{ONE} {ONE.upper()}", f"{FIRST} {FIRST}", id="whatever the case"),
        pytest.param(ZERO, ZERO, id="none stays none"),
        pytest.param(SECOND, SECOND, id="a pseudonym stays"),
        pytest.param("on n1.example, n1", "on host, host", id="the longest name of a host first"),
        pytest.param("n12 an1 n1-a", "n12 an1 n1-a", id="no part of a word is a host"),
    ],
)
def test_texts(text, expected):
    """UUIDs and hosts."""
    assert Redaction(host_names=("n1", "n1.example", "")).text(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("  Serial Number : 13", "  Serial Number : removed", id="a serial number"),
        pytest.param("  Serial Number : N/A", "  Serial Number : N/A", id="none"),
        pytest.param("  Serial Number :", "  Serial Number :", id="empty"),
        pytest.param("  Product Name : A100", "  Product Name : A100", id="not the whole key"),
        pytest.param(
            "Open Kernel Module  580.65.06  Release Build  (root@gpu-7.example)  Sun Jul 13",
            "Open Kernel Module  580.65.06  Release Build  (removed)  Sun Jul 13",
            id="who built the driver, and where",
        ),
        pytest.param("name: x\nmode: y", "name: removed\nmode: y", id="each line for itself"),
    ],
)
def test_lines(line, expected):
    """Values of the keys that the vendor names."""
    redaction = Redaction(identifying_keys=r".*serial.*|name")
    assert redaction.lines(line) == expected
    assert redaction.text(line) == line  # paths of /sys have such forms too


def test_json_values():
    """Strings at any depth, keys too; numbers and null stay."""
    value = {f"GPU-{ONE}": [{"uuid": f"GPU-{ONE}"}, (1, None, True)]}
    assert Redaction().value(value) == {f"GPU-{FIRST}": [{"uuid": f"GPU-{FIRST}"}, [1, None, True]]}


@given(st.binary(max_size=40), st.booleans())
def test_bytes_keep_their_length(before, is_kept):
    """A UUID in binary and one in text are one; a structure is as long as it was."""
    redaction = Redaction(keeps=is_kept)
    octets = before + UUID(ONE).bytes + ONE.encode()
    found = redaction.octets(octets, [len(before)])
    assert len(found) == len(octets)
    expected = ONE if is_kept else FIRST
    assert found.endswith(UUID(expected).bytes + expected.encode())


def test_everything_can_be_kept():
    """Where the owner requests it."""
    kept = Redaction(keeps=True, host_names=("n1",), identifying_keys="name")
    text = f"name: n1 {ONE}"
    assert (kept.text(text), kept.lines(text), kept.value([text])) == (text, text, [text])
