"""Precedence of the layers, and that nothing unknown, invalid or contradictory starts."""

from __future__ import annotations

import pytest

from kube.errors import SettingsError
from plugin.config import Mode, load_settings
from plugin.nvidia.mig_strategy import MigStrategy


def file(tmp_path, text: str) -> str:
    """A settings file."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


def loaded(flags=None, environ=None):
    """The settings of flags and variables, of this call alone."""
    return load_settings(flags or {}, environ or {}).settings


def test_flag_over_environment_over_file_over_default(tmp_path):
    """The documented order, each layer seen to win over the next, for NVIDIA's and for ours."""
    text = (
        "version: v1\n"
        "flags: {migStrategy: mixed, gdsEnabled: true, plugin: {deviceIDStrategy: index}}\n"
        "coterie: {log_level: debug, metrics_port: 1, node_name: file}\n"
    )
    environ = {
        "CONFIG_FILE": file(tmp_path, text),
        "MIG_STRATEGY": "single",
        "GDS_ENABLED": "false",
        "COTERIE_PLUGIN_LOG_LEVEL": "warning",
        "NODE_NAME": "environment",
    }
    found = loaded({"mig_strategy": "none", "node_name": "flag"}, environ)
    assert found.mig_strategy is MigStrategy.NONE
    assert found.gds_enabled is False
    assert found.device_id_strategy.value == "index"
    assert found.mofed_enabled is False
    assert (found.node_name, found.log_level, found.metrics_port) == ("flag", "warning", 1)
    assert found.kubelet_port == 10250


def test_no_file(tmp_path):
    """An empty variable names none: NVIDIA's manifests set it so."""
    assert loaded(environ={"CONFIG_FILE": ""}).node_name is None
    with pytest.raises(
        SettingsError, match=r"none\.yaml cannot be read: no such file or directory$"
    ):
        loaded({"config_file": str(tmp_path / "none.yaml")})


def test_the_machines_own_environment_counts(monkeypatch):
    """Unless the caller hands in another."""
    monkeypatch.setenv("MIG_STRATEGY", "mixed")
    assert load_settings({}).settings.mig_strategy is MigStrategy.MIXED


def test_variables_count_as_written_and_no_others():
    """A lower-case namesake of an unprefixed variable belongs to another program."""
    environ = {"NODE_NAME": "real", "node_name": "other", "mig_strategy": "nonsense"}
    found = loaded(environ=environ)
    assert (found.node_name, found.mig_strategy) == ("real", MigStrategy.NONE)


def test_of_several_variables_the_first_counts():
    """NVIDIA renamed two settings and kept the old names; ours may come from the downward API."""
    both = {"DRIVER_ROOT_CTR_PATH": "/new", "CONTAINER_DRIVER_ROOT": "/old"}
    assert str(loaded(environ=both).driver_root_ctr_path) == "/new"
    old = {"CONTAINER_DRIVER_ROOT": "/old"}
    assert str(loaded(environ=old).driver_root_ctr_path) == "/old"
    names = {"COTERIE_PLUGIN_NODE_NAME": "ours", "NODE_NAME": "downward"}
    assert loaded(environ=names).node_name == "ours"
    assert loaded(environ={"NODE_IP": "10.0.0.7"}).kubelet_address == "10.0.0.7"


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        *(("true", True), ("1", True), ("T", True)),
        *(("false", False), ("0", False), ("F", False), ("", False)),
    ],
)
def test_booleans_as_go_writes_them(value, meaning):
    """Manifests of NVIDIA's plugin hold such."""
    assert loaded(environ={"FAIL_ON_INIT_ERROR": value}).fail_on_init_error is meaning


def test_an_empty_variable_is_unset(tmp_path):
    """Templates render them; the file's value counts then, else the default."""
    names = ("NVIDIA_DRIVER_ROOT", "CDI_ANNOTATION_PREFIX", "NVIDIA_CDI_HOOK_PATH", "MIG_STRATEGY")
    assert loaded(environ=dict.fromkeys(names, "")) == loaded()
    path = file(tmp_path, "flags: {migStrategy: single}")
    found = loaded({"config_file": path}, {"MIG_STRATEGY": ""})
    assert found.mig_strategy is MigStrategy.SINGLE
    both = {"DRIVER_ROOT_CTR_PATH": "", "CONTAINER_DRIVER_ROOT": "/old"}
    assert str(loaded(environ=both).driver_root_ctr_path) == "/old"


def test_an_empty_variable_of_ours_is_no_default(check_message):
    """A reporter would become a second device plugin where a template left the mode empty."""
    with pytest.raises(SettingsError) as caught:
        loaded(environ={"COTERIE_PLUGIN_MODE": ""})
    check_message(caught.value)


def test_sharing(tmp_path):
    """Handed on as a value, with the resource's own domain."""
    text = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4, rename: x}]}}"
    found = load_settings(
        {"config_file": file(tmp_path, text), "resource_name": "example.com/gpu"}, {}
    )
    assert found.sharing.replicas == {"example.com/gpu": 4}
    assert any("rename" in note for note in found.notes)
    assert load_settings({}, {}).sharing.replicas == {}


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        (
            {},
            {"MIG_STRATEGY": "all"},
            "setting mig_strategy (environment, MIG_STRATEGY) is 'all', expected 'none', 'single'",
        ),
        (
            {"device_id_strategy": "name"},
            {},
            "setting device_id_strategy (flag, --device-id-strategy) is 'name', expected 'uuid' or",
        ),
        ({"device_list_strategy": "env"}, {}, "setting device_list_strategy"),
        ({"device_list_strategy": ""}, {}, "list-strategy) is empty, expected at least 1 of them"),
        ({}, {"FAIL_ON_INIT_ERROR": "on"}, "FAIL_ON_INIT_ERROR) is 'on', expected true or false"),
        ({"pass_device_specs": "maybe"}, {}, "specs) is 'maybe', expected true or false"),
        ({"pass_device_specs": ""}, {}, "specs) is '', expected true or false"),
        ({"pass_device_specs": 2}, {}, "specs) is 2, expected true or false"),
        ({"metrics_port": "many"}, {}, "setting metrics_port (flag, --metrics-port) is 'many'"),
        ({"metrics_port": "70000"}, {}, "expected less than or equal to 65535"),
        ({"imex_channel_ids": "1"}, {}, "expected nothing or 0"),
        ({"imex_channel_ids": "0,0"}, {}, "expected nothing or 0"),
        ({"device_discovery_strategy": "tegra"}, {}, "expected 'auto' or 'nvml'"),
        ({"kubelet_socket": "kubelet.sock"}, {}, "setting kubelet_socket"),
        ({"driver_root": "run/nvidia"}, {}, "expected an absolute path"),
        ({"node_name": "Not A Node"}, {}, "setting node_name"),
        ({"resource_name": "gpu"}, {}, "setting resource_name"),
        ({"cdi_annotation_prefix": "cdi"}, {}, "setting cdi_annotation_prefix"),
        ({"shared_devices_allocation_policy": "spread"}, {}, "'distributed' or 'packed'"),
        ({"colour": "red"}, {}, "setting colour (flag, --colour) is not a known key, its value is"),
        ({}, {"COTERIE_PLUGIN_COLOUR": "red"}, "COTERIE_PLUGIN_COLOUR is no setting, expected"),
        ({}, {"COTERIE_PLUGIN_MIG_STRATEGY": "none"}, "COTERIE_PLUGIN_MIG_STRATEGY is no setting"),
    ],
)
def test_invalid_and_unknown_settings_stop_the_start(flags, environ, message):
    """By name, layer, value and expectation."""
    with pytest.raises(SettingsError) as caught:
        loaded(flags, environ)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flags: {migStrategy: yes}", "setting mig_strategy (file, flags.migStrategy) is True"),
        ("imex: {channelIDs: [no]}", "expected no truth value"),
        ("coterie: {metrics_port: true}", "setting metrics_port (file, coterie.metrics_port)"),
        ("flags: {mig: none}", "config.yaml: flags has unknown key 'mig', expected one of: "),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}", "config.yaml: sharing.mps"),
        ("flags: {failOnInitError: 'on'}", "failOnInitError) is 'on', expected true or false"),
    ],
)
def test_faults_of_the_file(tmp_path, text, message):
    """With the key that it has there."""
    with pytest.raises(SettingsError) as caught:
        loaded({"config_file": file(tmp_path, text)})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"mode": "reporter", "device_list_strategy": "envvar", "pass_device_specs": True},
            "device_list_strategy, pass_device_specs: expected none of them in mode reporter",
        ),
        ({"mode": "reporter", "gds_enabled": True}, "gds_enabled: expected none"),
        ({"simulate_faults": "/f"}, "expected `simulate` beside it"),
        ({"simulate": "8x-l4", "pass_device_specs": True}, "has no device nodes"),
        ({"simulate": "8x-l4", "device_list_strategy": "envvar,cdi-cri"}, "has no device nodes"),
        (
            {"simulate": "8x-l4", "driver_root": "/d", "dev_root": "/", "pass_device_specs": True},
            "or a dev_root of its own",
        ),
        ({"kubelet_insecure": True, "kubelet_ca": "/ca"}, "kubelet_insecure takes any"),
        ({"kubelet_insecure": True, "kubelet_server_name": "n"}, "kubelet_insecure takes any"),
        ({"topology_manager_scope": "pod"}, "expected topology_manager_policy beside it"),
        ({"cdi_generator": "own", "cdi_feature_flags": "x"}, "are for nvidia-ctk"),
        ({"cdi_generator": "own", "cdi_disable_hooks": "x"}, "are for nvidia-ctk"),
    ],
)
def test_contradictions_stop_the_start(flags, message):
    """Each is fine alone."""
    with pytest.raises(SettingsError) as caught:
        loaded(flags)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "flags",
    [
        {"mode": "reporter"},
        {"simulate": "8x-l4", "simulate_faults": "/f", "device_list_strategy": "volume-mounts"},
        {"simulate": "8x-l4", "dev_root": "/nodes", "pass_device_specs": True},
        {"simulate": "8x-l4", "driver_root": "/nodes", "device_list_strategy": "cdi-cri"},
        {"kubelet_insecure": True},
        {"kubelet_ca": "/ca", "kubelet_server_name": "n"},
        {"topology_manager_scope": "pod", "topology_manager_policy": "none"},
        {"cdi_generator": "auto", "cdi_feature_flags": "x"},
    ],
)
def test_what_goes_together(flags):
    """The same settings, the other way round."""
    assert loaded(flags)


def test_a_reporter_may_share_the_file_of_nvidias_plugin(tmp_path):
    """It stands beside that plugin; what is not for it is reported, not refused."""
    path = file(
        tmp_path, "flags: {plugin: {deviceListStrategy: envvar}}\ncoterie: {mode: reporter}"
    )
    found = load_settings({"config_file": path}, {})
    assert found.settings.mode is Mode.REPORTER
    assert any("device_list_strategy" in note and "reporter" in note for note in found.notes)


def test_words_that_are_no_xid_are_reported():
    """NVIDIA's plugin ignores them, and says so in its log."""
    environ = {"DP_DISABLE_HEALTHCHECKS": "48,gpu", "DP_ENABLE_HEALTHCHECKS": "109"}
    found = load_settings({}, environ)
    assert not found.settings.xid_rules.counts(48)
    assert found.settings.xid_rules.counts(109)
    assert any("'gpu'" in note for note in found.notes)


@pytest.mark.parametrize(("root", "n_notes"), [("", 0), ("/run/nvidia/mps", 1)])
def test_a_folder_of_mps_is_no_mps(root, n_notes):
    """Manifests name it whether MPS is on or not; what switches it on is refused."""
    assert len(load_settings({}, {"MPS_ROOT": root}).notes) == n_notes
