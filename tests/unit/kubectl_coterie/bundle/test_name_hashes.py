"""Names and UUIDs become hashes, everywhere the same."""

from __future__ import annotations

import json
import re
from uuid import UUID

import pytest

from kubectl_coterie.bundle import NameHashes

UID = "6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e01"


def hashes(key=b"key", **names):
    """With these names, by kind."""
    made = NameHashes(key)
    known = {"node": ["gpu-07"], "pod": ["train-0"], "namespace": ["ml"], **names}
    for kind, found in known.items():
        for name in found:
            made.learn(kind, name)
    return made


def code(name, **options):
    """What a name becomes."""
    return str(hashes(**options).value(name))


def test_a_name_says_its_kind_and_no_more():
    """Ten digits of a keyed hash."""
    assert re.fullmatch(r"node-[0-9a-f]{10}", code("gpu-07"))
    assert re.fullmatch(r"pod-[0-9a-f]{10}", code("train-0"))


def test_two_bundles_cannot_be_compared():
    """Each has a key of its own."""
    assert code("gpu-07") != code("gpu-07", key=b"other")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pod ml/train-0 on gpu-07.", "pod {ml}/{train} on {gpu}."),
        ('pod="ml/train-0" node="gpu-07"', 'pod="{ml}/{train}" node="{gpu}"'),
        ("gpu-07.example.com", "{gpu}.example.com"),
        ("rack.gpu-07", "rack.{gpu}"),
        ("train-0.17abc4", "{train}.17abc4"),
        ("ml_train-0_x", "{ml}_{train}_x"),
        ("a\\ngpu-07", "a\\n{gpu}"),
        ("gpu-071 xgpu-07 x-gpu-07", "gpu-071 xgpu-07 x-gpu-07"),
        ("train-0-rank1 gpu-07-x-y.log", "{train}-rank1 {gpu}-x-y.log"),
        ("ml-x a-b", "ml-x a-b"),
        ("a.b", "a.b"),
    ],
)
def test_words_are_replaced(text, expected):
    """Whole ones, in any surrounding."""
    names = {"ml": code("ml"), "train": code("train-0"), "gpu": code("gpu-07")}
    assert hashes().text(text) == expected.format(**names)


def test_uuids_become_uuids():
    """Pods' and GPUs' alike, prefix and form stay; the one of zeros identifies nothing."""
    made = hashes()
    found = made.text(f"GPU-{UID} {UID.upper()} 00000000-0000-0000-0000-000000000000")
    first, second, zeros = found.split()
    assert first == f"GPU-{second}"
    assert UUID(second).version == 8
    assert UID not in found
    assert set(zeros) == {"0", "-"}


def test_addresses_become_hashes():
    """Of both versions, with port or mask; loopback, versions, times and PCI addresses stay."""
    made = hashes(node=["10.1.1.1"])
    text = "10.3.4.5:6443 http_10.3.4.5_80 [fd00::7]:1 10.1.1.1"
    kept = made.text(text)
    assert re.fullmatch(
        r"(ip-[0-9a-f]{10}):6443 http_\1_80 \[ip-[0-9a-f]{10}\]:1 node-[0-9a-f]{10}", kept
    )
    same = "127.0.0.1 ::1 0.0.0.0 v1.2.3.4 1.2.3.4.5 999.1.1.1 08:20:36 0000:3b:00.0 std::x"
    assert made.text(same) == same


def test_of_a_host_its_first_piece_and_its_domains_are_names():
    """Logs have the short name, and other hosts of the same domain."""
    made = hashes(node=["dgx01.gpu.example.corp"], host=["api.other.corp"])
    node = made.text("dgx01.gpu.example.corp")
    assert made.text("dgx01") == node
    assert re.fullmatch(r"x\.domain-[0-9a-f]{10}", made.text("x.gpu.example.corp"))
    assert re.fullmatch(r"x\.domain-[0-9a-f]{10}", made.text("x.other.corp"))
    assert made.text("api") == "api"


def test_names_that_are_no_words_are_replaced_in_text():
    """Values of labels and users may hold other characters."""
    made = hashes(label=["row_1", "row_1_b"], user=["oidc:jane@x"])
    kept = made.text('at row_1, "row_1_b", by oidc:jane@x or row_12')
    code = "[0-9a-f]{10}"
    assert re.fullmatch(rf'at label-{code}, "label-{code}", by user-{code} or row_12', kept)


def test_keys_of_labels_and_resources_are_names():
    """Other keys are fields."""
    made = hashes()
    made.learn("key", "pool")
    made.learn("key", "status")
    kept = made.value({"labels": {"pool": "x", "a": "y"}, "status": 1, "limits": None})
    pool = made.value("pool")
    assert kept == {"labels": {pool: "x", "a": "y"}, "status": 1, "limits": None}


def test_json_is_taken_apart():
    """Keys stay unless they hold a path of names; texts of annotations are JSON themselves."""
    made = hashes(namespace=["ml", "pods"])
    nested = json.dumps({"pods": ["train-0"]})
    value = {"pods": nested, "ml/train-0": 1, "list": ["gpu-07", 7, None, True], "bad": "{gpu-07"}
    kept = made.value(value)
    names = {name: code(name) for name in ("ml", "train-0", "gpu-07")}
    assert kept == {
        "pods": json.dumps({"pods": [names["train-0"]]}, separators=(",", ":")),
        f"{names['ml']}/{names['train-0']}": 1,
        "list": [names["gpu-07"], 7, None, True],
        "bad": "{" + names["gpu-07"],
    }


def test_lines_of_a_log_keep_their_form():
    """JSON by its values, others as text."""
    log = '{"event": "ready", "node": "gpu-07"}\nI1 bound pod="ml/train-0"\n'
    kept = hashes().lines(log)
    first, second, last = kept.split("\n")
    assert json.loads(first) == {"event": "ready", "node": code("gpu-07")}
    assert second == f'I1 bound pod="{code("ml")}/{code("train-0")}"'
    assert last == ""


@pytest.mark.parametrize("name", ["default", "kube-system", "coterie-system", ""])
def test_what_every_cluster_has_stays(name):
    """It identifies nothing, and tells much."""
    assert hashes(namespace=[name]).text(f"in {name}/x") == f"in {name}/x"


def test_a_name_of_digits_is_replaced_where_it_stands_alone():
    """As a word it would be every number."""
    made = hashes(node=["7"])
    assert str(made.value("7")).startswith("node-")
    assert made.text("7 GPUs") == "7 GPUs"


def test_the_first_kind_of_a_name_stays():
    """So that it is the same everywhere."""
    made = hashes(pod=["gpu-07"])
    assert str(made.value("gpu-07")).startswith("node-")
