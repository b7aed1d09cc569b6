"""XIDs: the same ones count as in NVIDIA's plugin, and each has the catalogue's remedy."""

from __future__ import annotations

import pytest

from plugin.machine import Remedy
from plugin.nvidia.xids import APPLICATION_XIDS, XidRules, read_xid_rules

HIGHEST = 2**64 - 1


def test_without_variables_only_application_errors_do_not_count():
    """NVIDIA's list is six XIDs long, and everything else makes the GPU unhealthy."""
    rules = read_xid_rules()
    assert rules == XidRules()
    assert {xid for xid in range(1, 300) if not rules.counts(xid)} == {13, 31, 43, 45, 68, 109}
    assert not rules.is_off


@pytest.mark.parametrize(
    ("disable", "enable", "counting", "ignored"),
    [
        pytest.param("48", "", {79}, {48, 31}, id="a disabled XID comes on top of the built-in"),
        pytest.param("48,79", "", {94}, {48, 79}, id="a list"),
        pytest.param(" 48 , 79 ", "", {94}, {48, 79}, id="blanks do not matter"),
        pytest.param("", "31", {31, 79}, {13}, id="a built-in one can be enabled"),
        pytest.param("48", "48", {48}, {31}, id="enabling wins over disabling"),
        pytest.param("all", "", set(), {48, 31, 79}, id="all off"),
        pytest.param("xids", "", set(), {48, 31, 79}, id="xids is another word for all"),
        pytest.param("XIDs", "", set(), {48}, id="capitals do not matter"),
        pytest.param("48,all", "", set(), {48, 79}, id="all among others"),
        pytest.param("0", "", set(), {48}, id="0 is NVIDIA's number for all"),
        pytest.param("all", "48", {48}, {79, 31}, id="one selected while all are off"),
        pytest.param("", "all", {13, 31, 79}, set(), id="all on, the built-in ones too"),
        pytest.param("48", "all", {48, 31}, set(), id="all enabled wins over one disabled"),
        pytest.param("all", "all", {48, 31}, set(), id="all enabled wins over all disabled"),
        pytest.param("", "0", {13, 31}, set(), id="0 enables all as well"),
        pytest.param("", "109,xids", {13}, set(), id="xids among others enables all"),
        pytest.param(str(HIGHEST), "", {1}, {HIGHEST}, id="as large as Go reads"),
    ],
)
def test_variables_mean_what_they_mean_to_nvidia(disable, enable, counting, ignored):
    """Whoever moves over from NVIDIA's plugin keeps his settings."""
    rules = read_xid_rules(disable, enable)
    assert {xid for xid in counting | ignored if rules.counts(xid)} == counting
    assert rules.malformed == ()


@pytest.mark.parametrize(
    ("disable", "enable", "is_off"),
    [
        pytest.param("", "", False, id="nothing said"),
        pytest.param("all", "", True, id="all off"),
        pytest.param("all", "48", False, id="all but one"),
        pytest.param("all", "all", False, id="all on again"),
        pytest.param("48", "", False, id="one off"),
    ],
)
def test_checks_are_off_only_where_nothing_is_left(disable, enable, is_off):
    """Off means that lost GPUs are not looked for either, so it must be configured in full."""
    assert read_xid_rules(disable, enable).is_off is is_off


@pytest.mark.parametrize("word", ["gpu", "-1", "+5", "0x30", "1_0", "4 8", "٤٨", str(HIGHEST + 1)])
def test_words_that_are_no_xid_are_left_out_and_reported(word):
    """NVIDIA's plugin logs them and goes on; Python would take some of them for numbers."""
    rules = read_xid_rules(f"{word},79", f",{word}")
    assert rules.malformed == (word, word)
    assert (rules.disabled, rules.enabled) == (APPLICATION_XIDS | {79}, frozenset())


def test_words_behind_all_are_not_read():
    """NVIDIA's reader stops there, so nothing is said of them."""
    assert read_xid_rules("bad,all,worse").malformed == ("bad",)


@pytest.mark.parametrize(
    ("xid", "remedy"),
    [
        pytest.param(63, Remedy.NOTHING, id="a row was remapped"),
        pytest.param(94, Remedy.RESTART_APP, id="contained memory error"),
        pytest.param(105, Remedy.RESTART_APP, id="last of a span"),
        pytest.param(48, Remedy.RESET_GPU, id="double bit ECC error"),
        pytest.param(74, Remedy.RESET_GPU, id="NVLink error"),
        pytest.param(144, Remedy.RESET_GPU, id="first NVLink 5 error"),
        pytest.param(150, Remedy.RESET_GPU, id="last NVLink 5 error"),
        pytest.param(95, Remedy.RESET_GPU, id="uncontained memory error"),
        pytest.param(79, Remedy.RESTART_NODE, id="fallen off the bus"),
        pytest.param(142, Remedy.UNKNOWN, id="contact support"),
        pytest.param(54, Remedy.UNKNOWN, id="look at the cables"),
        pytest.param(167, Remedy.UNKNOWN, id="left open by NVIDIA"),
        pytest.param(9999, Remedy.UNKNOWN, id="not in the catalogue"),
    ],
)
def test_remedies_are_the_catalogue_s(xid, remedy):
    """Recovery stands on them: too light a remedy would offer a broken GPU again."""
    assert XidRules.remedy_of(xid) is remedy


def test_each_xid_has_one_remedy():
    """An XID under two remedies would silently have the later."""
    by_remedy = {
        remedy: [x for x in range(300) if XidRules.remedy_of(x) is remedy] for remedy in Remedy
    }
    counts = {remedy.name: len(xids) for remedy, xids in by_remedy.items()}
    assert counts == {
        "NOTHING": 23,
        "RESTART_APP": 48,
        "RESET_GPU": 23,
        "RESTART_NODE": 2,
        "UNKNOWN": 204,
    }
    assert [remedy.rank for remedy in Remedy] == [0, 1, 2, 3, 4]
