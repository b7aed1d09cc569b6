"""Settings: precedence, and that nothing unknown or invalid starts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from extender.config import ExtenderSettings, load_settings
from extender.errors import ClusterSpecError
from kube.errors import SettingsError
from topology.cli.program import EXTENDER_URL
from topology.groups import DEFAULT_FAMILIES
from topology.model import DEFAULT_RESOURCE
from topology.value import DEFAULT_DEMAND

FLAGS = {"cluster": "1x 8x-l4"}
TLS = {"tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"}


def file(tmp_path, text):
    """A settings file."""
    path = tmp_path / "extender.yaml"
    path.write_text(text)
    return path


def test_flag_over_environment_over_file_over_default(tmp_path, monkeypatch):
    """The documented order, each layer seen to win over the next."""
    path = file(tmp_path, "candidate_limit: 1\nlisten_port: 1\nassume_s: 11\ncluster: 1x 8x-t4\n")
    monkeypatch.setenv("COTERIE_EXTENDER_CANDIDATE_LIMIT", "2")
    monkeypatch.setenv("COTERIE_EXTENDER_LISTEN_PORT", "2")
    monkeypatch.setenv(EXTENDER_URL, "http://127.0.0.1:1")  # kubectl coterie's own
    settings = load_settings(FLAGS | {"candidate_limit": 3, "config": path})
    assert settings.candidate_limit == 3
    assert settings.listen_port == 2
    assert settings.assume_s == 11.0
    assert settings.keep_alive_s == 120
    assert settings.cluster == "1x 8x-l4"


def test_defaults_become_rules():
    """What decisions depend on is one value."""
    rules = load_settings(FLAGS).rules
    assert rules.resources == (DEFAULT_RESOURCE,)
    assert rules.candidate_limit == 20
    assert rules.loss_bounds == (0.02, 0.10, 0.30)
    assert rules.demand == DEFAULT_DEMAND


def test_worths_are_patterns_with_numbers():
    """A pattern may hold an equals sign: the last one counts."""
    rules = load_settings(FLAGS | {"gpu_worth": "h100=12,l4|t4=0.5,a=b=2"}).rules
    assert rules.gpu_worth == (("h100", 12.0), ("l4|t4", 0.5), ("a=b", 2.0))
    assert load_settings(FLAGS).rules.gpu_worth == ()


def test_levels_of_the_network_are_named_by_labels():
    """Nearest first; those that Coterie reads by itself stay beside them."""
    rules = load_settings(FLAGS | {"group_levels": "leaf=a.b/rack,leaf=rack,row=row"}).rules
    assert rules.group_levels == (("leaf", "a.b/rack"), ("leaf", "rack"), ("row", "row"))
    own, *others = rules.group_families
    assert [(one.level, one.keys) for one in own.levels] == [
        ("leaf", ("a.b/rack", "rack")),
        ("row", ("row",)),
    ]
    assert tuple(others) == load_settings(FLAGS).rules.group_families == DEFAULT_FAMILIES


def test_no_kind_of_group_is_inferred_by_default():
    """A pod of another project's group waits for the others only where the setting says so."""
    assert load_settings(FLAGS).rules.group_kinds == ()
    rules = load_settings(FLAGS | {"group_kinds": "kueue,leaderworkerset"}).rules
    assert rules.group_kinds == ("kueue", "leaderworkerset")


def test_weights_may_have_decimals():
    """A share of a size need not be whole."""
    rules = load_settings(FLAGS | {"demand": "2:0.5,4:12.25"}).rules
    assert rules.demand.sizes == ((2, 0.5), (4, 12.25))


@pytest.mark.parametrize(
    "text",
    [
        "resources: 'a.com/x, b.com/y'\nloss_bounds: '0.1,0.5'\ndemand: '2:3,4'\n",
        "resources: [a.com/x, b.com/y]\nloss_bounds: [0.1, 0.5]\ndemand: '2:3.0,4:1'\n",
    ],
    ids=["as text", "as lists"],
)
def test_lists_may_be_text_or_lists(tmp_path, text):
    """Environment and flags have only text."""
    rules = load_settings(FLAGS | {"config": file(tmp_path, text)}).rules
    assert rules.resources == ("a.com/x", "b.com/y")
    assert rules.loss_bounds == (0.1, 0.5)
    assert rules.demand.sizes == ((2, 3.0), (4, 1.0))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cluster": ""}, "setting cluster (flag, --cluster) is ''"),
        (
            FLAGS | {"candidate_limit": -1},
            "setting candidate_limit (flag, --candidate-limit) is -1",
        ),
        (FLAGS | {"listen_port": "many"}, "setting listen_port (flag, --listen-port) is 'many'"),
        (FLAGS | {"resources": "gpu"}, "expected different extended resources, each domain/name"),
        (FLAGS | {"resources": "a/b,a/b"}, "expected different extended resources"),
        (
            FLAGS | {"resources": "a/"},
            "setting resources (flag, --resources) is 'a/', expected different extended resources",
        ),
        (FLAGS | {"resources": "/gpu"}, "expected different extended resources"),
        (FLAGS | {"resources": "a/b/c"}, "expected different extended resources"),
        (FLAGS | {"resources": "A_B.com/gpu"}, "expected different extended resources"),
        (FLAGS | {"loss_bounds": "0.3,0.1"}, "expected ascending bounds"),
        (FLAGS | {"loss_bounds": "2"}, "setting loss_bounds.0 (flag, --loss-bounds) is '2'"),
        (FLAGS | {"demand": "4,2"}, "setting demand (flag, --demand) is '4,2'"),
        (FLAGS | {"demand": "4:0"}, "setting demand (flag, --demand) is '4:0'"),
        (FLAGS | {"demand": "1:1.2.3"}, "setting demand (flag, --demand) is '1:1.2.3'"),
        (
            FLAGS | {"demand": "x"},
            "setting demand (flag, --demand) is 'x', expected size or size:weight, comma-",
        ),
        (
            FLAGS | {"demand": "1:."},
            "setting demand (flag, --demand) is '1:.', expected size or size:weight, comma-",
        ),
        (
            FLAGS | {"demand": "1,"},
            "setting demand (flag, --demand) is '1,', expected size or size:weight, comma-",
        ),
        *(
            (FLAGS | {"gpu_worth": text}, "expected pattern=number, comma-separated: regular")
            for text in ("h100", "=3", "h100=0", "h100=x", "h100=-1", "(=2", "h100=1e9")
        ),
        *(
            (FLAGS | {"group_kinds": text}, "expected different ones of: kueue, koordinator, yuni")
            for text in ("volcano", "kueue,kueue")
        ),
        *(
            (FLAGS | {"group_levels": text}, "expected level=label-key, comma-separated: a name of")
            for text in ("rack", "=rack", "rack=", "Rack=x", "any=x", "rack=a/b/c", "rack=-x")
        ),
        (
            FLAGS | {"group_levels": "spine=row,leaf=rack"},
            "have no common order, expected the same order in every family",
        ),
        (FLAGS | {"group_levels": "zone=row"}, "level 'zone' is named twice, expected each name"),
        (FLAGS | {"log_level": "loud"}, "setting log_level (flag, --log-level) is 'loud'"),
        (
            FLAGS | {"colour": "red"},
            "setting colour (flag, --colour) is not a known key, its value is 'red'",
        ),
        pytest.param(
            {"tls_cert": "c", "tls_key": "k"}, "expected all three or none", id="half of TLS"
        ),
        pytest.param(
            FLAGS | {"kubeconfig": "k"},
            "setting kubeconfig is for a live extender",
            id="two clusters",
        ),
        pytest.param(
            FLAGS | {"listen_port": 9000, "health_port": 9000},
            "settings listen_port, health_port are both 9000, expected two ports",
            id="one port twice",
        ),
        pytest.param(
            FLAGS | {"listen_port": 9000, "read_port": 9000},
            "setting read_port is 9000, expected another than listen_port, health_port",
            id="reads on the verbs' port",
        ),
        pytest.param(
            {"events": "some"}, "setting events (flag, --events) is 'some'", id="no such level"
        ),
    ],
)
def test_settings_that_cannot_be_stop_the_start(flags, message):
    """Alone or together; the message has name, value and expectation."""
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(
            {"claim_s": 5.0},
            r"setting claim_s is 5, expected more than http_timeout_s \(5\): binds are held",
            id="claim_s",
        ),
        pytest.param(
            {"assume_s": 10.0},
            r"setting assume_s is 10, expected more than 2 times http_timeout_s \(5\)",
            id="assume_s",
        ),
        pytest.param(
            {"staleness_bound_s": 40.9},
            "setting staleness_bound_s is 40.9, expected 41 or more",
            id="staleness_bound_s",
        ),
    ],
)
def test_times_fit_each_other(flags, message):
    """A plan that ends during its bind frees devices; a bound below a quiet watch stops placing."""
    with pytest.raises(SettingsError, match=message):
        load_settings(flags)


def test_a_live_extender_needs_no_settings():
    """In a pod, the service account says where the API server is."""
    settings = load_settings({})
    assert (settings.cluster, settings.kubeconfig, settings.tls_cert) == (None, None, None)
    with pytest.raises(ClusterSpecError, match="setting cluster is missing"):
        settings.cluster_spec()


def test_two_free_ports_are_two():
    """Port 0 takes a free one each time."""
    settings = load_settings({"listen_port": 0, "health_port": 0})
    assert (settings.listen_port, settings.health_port) == (0, 0)


def test_unknown_environment_names_stop_the_start(monkeypatch):
    """A misspelt variable must not be silently without effect; case does not matter."""
    monkeypatch.setenv("Coterie_Extender_Candidate_Limits", "5")
    with pytest.raises(SettingsError, match="Coterie_Extender_Candidate_Limits is no setting"):
        load_settings(FLAGS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour: red", "extender.yaml: the text has unknown key 'colour', expected one of: "),
        ("- a", "expected an object"),
        ("a: [", "cannot be read"),
        ("[" * 600, "cannot be read: nested too deeply"),
        ("&a [*a]", "expected an object"),
        ("2026-11-21: x", "the text has unknown key"),
        (
            "candidate_limit: true",
            "setting candidate_limit (file, candidate_limit) is True, expected no truth value",
        ),
        ("assume_s: no", "setting assume_s (file, assume_s) is False, expected no truth value"),
        ("candidate_limit: 1\ncandidate_limit: 2", "key 'candidate_limit' is given twice"),
    ],
)
def test_files_that_are_no_settings_stop_the_start(tmp_path, text, message):
    """Unknown keys included."""
    with pytest.raises(SettingsError) as caught:
        load_settings(FLAGS | {"config": file(tmp_path, text)})
    assert message in str(caught.value)


def test_an_empty_file_is_no_settings_and_a_missing_one_is_an_error(tmp_path):
    """A file that is named must be read."""
    assert load_settings(FLAGS | {"config": file(tmp_path, "")}).candidate_limit == 20
    with pytest.raises(SettingsError, match=r"cannot be read: no such file or directory$"):
        load_settings(FLAGS | {"config": tmp_path / "missing.yaml"})


def test_a_cluster_is_a_line_or_a_file(tmp_path):
    """Distinguished by the suffix."""
    path = tmp_path / "c.yml"
    path.write_text("groups: [{machine: 8x-l4, count: 2}]")
    assert load_settings({"cluster": str(path)}).cluster_spec().groups[0].count == 2
    assert load_settings(FLAGS).cluster_spec().groups[0].count == 1
    with pytest.raises(ClusterSpecError):
        load_settings({"cluster": "1x pdp-11"}).cluster_spec()


def test_an_empty_key_of_the_file_is_an_error(tmp_path):
    """It is an unfinished line."""
    with pytest.raises(SettingsError, match="setting listen_port"):
        load_settings(FLAGS | {"config": file(tmp_path, "listen_port:")})


def test_settings_are_frozen():
    """They cannot change after they were logged."""
    settings = load_settings(FLAGS)
    with pytest.raises(ValidationError):
        settings.listen_port = 1  # type: ignore[misc]  # that it is refused is the test


@pytest.mark.parametrize("name", ExtenderSettings.model_fields)
def test_every_setting_says_what_it_is(name):
    """Unit, range and why that default; the table in the documentation is made of these."""
    assert ExtenderSettings.model_fields[name].description
