"""The plugin's settings as small values, and their other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from kube.client import kubelet_endpoint
from kube.errors import SettingsError
from kube.settings import FieldNames, names_of
from plugin.config import Mode, PluginSettings
from plugin.nvidia.container.allocate_response import AccessRules, ListStrategy
from plugin.nvidia.container.cdi_files import CdiGenerator, CdiRules
from plugin.nvidia.container.device_nodes import Extra, IdStrategy
from plugin.nvidia.container.nvidia_ctk import CtkOptions
from plugin.nvidia.mig_strategy import MigStrategy
from plugin.nvidia.settings import NvidiaNames, NvidiaSettings
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.topology_manager import TopologyManager

BARE = PluginSettings()
NAMES = names_of(PluginSettings)


def settings(**given) -> PluginSettings:
    """Settings of raw values, as a file holds them."""
    return PluginSettings.model_validate(given)


def test_defaults_are_nvidias():
    """Whoever replaces NVIDIA's plugin gets the same containers."""
    assert BARE.access_rules == AccessRules()
    assert BARE.cdi_rules == CdiRules(seen_driver_root=Path("/driver-root"))
    assert BARE.mode is Mode.DEVICE_PLUGIN
    assert BARE.resource_name == "nvidia.com/gpu"
    assert BARE.fail_on_init_error is True
    assert BARE.mig_strategy is MigStrategy.NONE
    assert BARE.xid_rules.counts(48)
    assert not BARE.xid_rules.counts(31)


def test_paths_of_the_kubelet():
    """Our sockets and the checkpoint lie beside the kubelet's socket."""
    folder = Path("/var/lib/kubelet/device-plugins")
    assert BARE.registration_socket == folder / "kubelet.sock"
    assert BARE.device_plugin_folder == folder
    assert BARE.checkpoint == folder / "kubelet_internal_checkpoint"
    other = settings(kubelet_socket="/k/dp/kubelet.sock")
    assert other.registration_socket == Path("/k/dp/kubelet.sock")
    assert other.device_plugin_folder == Path("/k/dp")
    assert other.checkpoint == Path("/k/dp/kubelet_internal_checkpoint")


def test_without_a_kubelet_socket_nothing_is_registered():
    """The sockets still need a place."""
    found = settings(kubelet_socket="")
    assert found.registration_socket is None
    assert found.device_plugin_folder == Path("/var/lib/kubelet/device-plugins")


def test_access_rules():
    """Every field of theirs."""
    chosen = settings(
        device_list_strategy="cdi-cri,envvar",
        device_id_strategy="index",
        pass_device_specs=True,
        driver_root="/run/nvidia/driver",
        gds_enabled=True,
        gdrcopy_enabled=True,
        cdi_annotation_prefix="example.com/",
    )
    assert chosen.access_rules == AccessRules(
        list_strategies=frozenset({ListStrategy.CDI_CRI, ListStrategy.ENVVAR}),
        id_strategy=IdStrategy.INDEX,
        passes_device_nodes=True,
        dev_root="/run/nvidia/driver",
        extras=frozenset({Extra.GDS, Extra.GDRCOPY}),
        cdi_annotation_prefix="example.com/",
    )
    assert settings(mofed_enabled=True).extras == {Extra.MOFED}


@pytest.mark.parametrize("dev_root", ["", None])
def test_device_nodes_are_in_the_drivers_root_unless_said_otherwise(dev_root):
    """As in NVIDIA's plugin."""
    chosen = settings(driver_root="/run/nvidia/driver", dev_root=dev_root)
    assert chosen.host_dev_root == Path("/run/nvidia/driver")
    assert settings(driver_root="/run/nvidia/driver", dev_root="/").host_dev_root == Path("/")


def test_cdi_rules():
    """Every field of theirs."""
    chosen = settings(
        cdi_folder="/etc/cdi",
        cdi_generator="nvidia-ctk",
        device_id_strategy="index",
        nvidia_cdi_hook_path="/opt/hook",
        cdi_feature_flags="a, b",
        cdi_disable_hooks=["chmod"],
        driver_root="/opt/driver",
        dev_root="/",
        driver_root_ctr_path="/seen",
        toolkit_folder="/opt/toolkit",
    )
    assert chosen.cdi_rules == CdiRules(
        folder=Path("/etc/cdi"),
        generator=CdiGenerator.NVIDIA_CTK,
        options=CtkOptions(
            hook_path="/opt/hook",
            strategy=IdStrategy.INDEX,
            feature_flags=("a", "b"),
            disabled_hooks=("chmod",),
        ),
        driver_root=Path("/opt/driver"),
        dev_root=Path("/"),
        seen_driver_root=Path("/seen"),
        toolkit=Path("/opt/toolkit"),
    )


def test_kubelet_endpoint():
    """As `kube.client.kubelet` wants it."""
    assert BARE.kubelet_endpoint == kubelet_endpoint("127.0.0.1")
    chosen = settings(
        kubelet_address="fd00::7", kubelet_port=10, kubelet_ca="/ca", kubelet_server_name="n"
    )
    assert chosen.kubelet_endpoint == kubelet_endpoint(
        "fd00::7", port=10, ca_file=Path("/ca"), server_name="n"
    )
    assert settings(kubelet_insecure=True).kubelet_endpoint.is_verified is False


def test_topology_manager():
    """Unknown unless a policy is given; its scope is then the kubelet's default."""
    assert BARE.topology_manager is None
    policy = TopologyManagerPolicy.RESTRICTED
    assert settings(topology_manager_policy="restricted").topology_manager == TopologyManager(
        policy, TopologyManagerScope.CONTAINER
    )
    both = settings(topology_manager_policy="restricted", topology_manager_scope="pod")
    assert both.topology_manager == TopologyManager(policy, TopologyManagerScope.POD)


def test_the_node_must_have_a_name(check_message):
    """Where it is needed; to look at a machine it is not."""
    assert settings(node_name="n1").node == "n1"
    with pytest.raises(SettingsError) as caught:
        _ = BARE.node
    check_message(caught.value)


def test_settings_can_be_logged():
    """The effective values are the first thing that is logged, as JSON."""
    dumped = json.loads(json.dumps(BARE.model_dump(mode="json")))
    assert dumped["device_list_strategy"] == ["envvar"]
    assert dumped["mode"] == "device-plugin"
    assert dumped["cdi_folder"] == "/var/run/cdi"


def test_settings_are_frozen():
    """They cannot change after they were logged."""
    with pytest.raises(ValidationError):
        BARE.node_name = "x"  # type: ignore[misc]  # that it is refused is the test


@pytest.mark.parametrize("name", PluginSettings.model_fields)
def test_every_setting_says_what_it_is(name):
    """Unit, range and why that default; the documentation is made of these."""
    assert PluginSettings.model_fields[name].description


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("mig_strategy", FieldNames(("--mig-strategy",), ("MIG_STRATEGY",), "flags.migStrategy")),
        (
            "driver_root_ctr_path",
            FieldNames(
                ("--driver-root-ctr-path", "--container-driver-root"),
                ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
                "flags.plugin.containerDriverRoot",
            ),
        ),
        ("mode", FieldNames(("--mode",), ("COTERIE_PLUGIN_MODE",), "coterie.mode")),
        (
            "node_name",
            FieldNames(
                ("--node-name",), ("COTERIE_PLUGIN_NODE_NAME", "NODE_NAME"), "coterie.node_name"
            ),
        ),
        (
            "kubelet_socket",  # NVIDIA's file has no place for it
            FieldNames(("--kubelet-socket",), ("KUBELET_SOCKET",), "coterie.kubelet_socket"),
        ),
    ],
)
def test_other_names(name, names):
    """NVIDIA's for what is NVIDIA's, ours for the rest."""
    assert NAMES[name] == names


def test_no_name_means_two_settings():
    """Neither a variable nor a key nor a flag."""
    for each in (
        [variable for names in NAMES.values() for variable in names.env],
        [names.key for names in NAMES.values()],
        [flag for names in NAMES.values() for flag in names.flags],
    ):
        assert len(each) == len(set(each))


def test_nvidias_settings_never_bear_our_prefix():
    """One variable for one setting."""
    for name, field in NvidiaSettings.model_fields.items():
        if any(isinstance(one, NvidiaNames) for one in field.metadata):
            assert not any(variable.startswith("COTERIE_") for variable in NAMES[name].env)
