"""Variables that the kubelet adds for Services: no setting, and no reason not to start."""

from __future__ import annotations

import pytest

from extender.config import load_settings
from kube.errors import SettingsError
from plugin.config import load_settings as load_plugin_settings

LINKS = {
    "SERVICE_HOST": "10.96.7.7",
    "SERVICE_PORT": "8443",
    "SERVICE_PORT_VERBS": "8443",
    "PORT": "tcp://10.96.7.7:8443",
    "PORT_8443_TCP": "tcp://10.96.7.7:8443",
    "PORT_8443_TCP_PROTO": "tcp",
    "PORT_8443_TCP_PORT": "8443",
    "PORT_8443_TCP_ADDR": "10.96.7.7",
}
"""As `envvars.FromServices` makes them for a Service with one named port."""


def links(service: str) -> dict[str, str]:
    """What a pod in the namespace of a Service has in its environment."""
    return {f"{service}_{name}": value for name, value in LINKS.items()}


@pytest.mark.parametrize(
    "service", ["COTERIE_EXTENDER", "COTERIE_EXTENDER_HEALTH", "COTERIE_EXTENDER_LISTEN"]
)
def test_a_service_is_no_setting_of_the_extender(service):
    """Also where its name and `_PORT` together are a setting's."""
    settings = load_settings({}, links(service))
    assert (settings.health_port, settings.listen_port) == (None, 8888)


def test_a_service_is_no_setting_of_the_plugin():
    """The other program, by the same mechanism."""
    environ = links("COTERIE_PLUGIN") | {"NODE_NAME": "n1"}
    assert load_plugin_settings({}, environ) == load_plugin_settings({}, {"NODE_NAME": "n1"})


def test_thousands_of_services_delay_no_start():
    """A namespace may have many, and every link was compared with every Service."""
    environ = {name: text for i in range(2000) for name, text in links(f"SERVICE_{i}_PORT").items()}
    assert load_settings({}, environ) == load_settings({}, {})


def test_a_setting_beside_the_links_counts():
    """A variable of the pod's own replaces the kubelet's of the same name."""
    environ = links("COTERIE_EXTENDER_HEALTH") | {"COTERIE_EXTENDER_HEALTH_PORT": "9000"}
    assert load_settings({}, environ).health_port == 9000


@pytest.mark.parametrize(
    "environ",
    [
        {"COTERIE_EXTENDER_PORT": "tcp://10.96.7.7:8443"},
        links("COTERIE_EXTENDER") | {"COTERIE_EXTENDER_SERVICE": "1"},
        links("COTERIE_EXTENDER") | {"COTERIE_EXTENDER_PORT_8443": "1"},
    ],
)
def test_what_no_service_explains_is_an_error(environ):
    """A misspelt setting must not be without effect."""
    with pytest.raises(SettingsError, match="is no setting, expected one of"):
        load_settings({}, environ)
