"""The kubelet's own API and checkpoint, as the plugin reads them, on the real kubelet."""

from __future__ import annotations

import asyncio

import pytest

from kube.client import KubeletClient, Transport, kubelet_endpoint
from kube.errors import KubeError, Unreachable
from plugin.kubelet import KubeletView, PodResources
from plugin.pods import as_holdings, read_checkpoint, read_node_pods
from tests.cluster.control.credentials import Authority, kubeconfig
from tests.cluster.control.manifests import apply_manifest, await_so
from tests.cluster.fleet.workload import RESOURCE
from tests.cluster.node.kubelet_node import KubeletNode
from tests.cluster.node.plugin_account import deploy_plugin, plugin_kubeconfig
from tests.cluster.node.plugin_process import start_plugin
from tests.cluster.node.real_pods import is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import StubPlugin, holders
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope, decode_devices
from topology.model import names
from topology.select import ContainerRole
from topology.topology_manager import TopologyManager

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

ACCOUNT = ("coterie-node", "coterie-plugin")
ALIGNED = {"topologyManagerPolicy": "best-effort", "topologyManagerScope": "pod"}


@pytest.fixture(scope="module")
def node(control_plane, node_tools):
    """A node of two NUMA nodes that aligns whole pods, and the plugin's account and rights."""
    apply_manifest(control_plane, "audit")
    with KubeletNode(control_plane, "machine", node_tools, numa_nodes=2, config=ALIGNED) as running:
        yield running


def query(node, config, call, **trust):
    """What a call returns of the node's kubelet, with the credentials of a kubeconfig."""

    async def run():
        endpoint = kubelet_endpoint("127.0.0.1", port=node.port, **trust)
        transport = await Transport.connect(config, endpoint=endpoint)
        try:
            return await call(KubeletClient(transport))
        finally:
            await transport.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def account(control_plane):
    """The kubeconfig of the plugin's account."""
    return control_plane.service_account(*ACCOUNT)


def test_the_plugins_rights_are_enough(node, account, pods):
    """Pods with all that identity needs, and the Topology Manager; no right more than shipped."""
    inits = [
        real_container("first", 1, runs_s=0.1),
        real_container("side", 1, restartPolicy="Always"),
    ]
    annotations = {"coterie.gpu/plan": "{}"}
    main = real_container("main", 2)
    with StubPlugin(node, {f"GPU-{i}": i // 4 for i in range(8)}) as plugin:
        plugin.until_listed()
        pods.create(
            real_pod("queried", main, inits=inits, annotations=annotations, nodeName=node.name)
        )
        made = pods.until("queried", is_running)
        (found,) = read_node_pods(query(node, account, KubeletClient.pods))
        assert (found.namespace, found.name) == ("default", "queried")
        assert found.uid == made["metadata"]["uid"]
        assert found.annotations.items() >= annotations.items()
        assert [(one.name, one.role, one.devices) for one in found.containers] == [
            ("first", ContainerRole.INIT, {RESOURCE: 1}),
            ("side", ContainerRole.SIDECAR, {RESOURCE: 1}),
            ("main", ContainerRole.APP, {RESOURCE: 2}),
        ]
        assert not found.is_deleting
    assert query(node, account, KubeletClient.topology_manager) == TopologyManager(
        TopologyManagerPolicy.BEST_EFFORT, TopologyManagerScope.POD
    )


def test_the_checkpoint_holds_what_pod_resources_does_not(node, account, pods):
    """The same devices, and those of init containers besides."""
    with StubPlugin(node, {f"GPU-{i}": i // 4 for i in range(8)}) as plugin:
        plugin.until_listed()
        inits = [real_container("first", 3, runs_s=0.1)]
        pods.create(real_pod("holds", real_container("main", 2), inits=inits, nodeName=node.name))
        pods.until("holds", is_running)
        known = read_node_pods(query(node, account, KubeletClient.pods))
        held = as_holdings(read_checkpoint(node.checkpoint.read_bytes()), known)
        ids = {(one.name, one.container): one.ids for one in held}
        assert {key: ids[key] for key in holders(node)} == holders(node)
        assert ids.keys() == {("holds", "first"), ("holds", "main")}
        assert len(ids["holds", "first"]) == 3
        assert {one.resource for one in held} == {RESOURCE}


class Unreadable:
    """A kubelet whose pods cannot be read, as with a certificate of an unknown authority."""

    async def pods(self, *, timeout_s=None):
        """Never."""
        raise Unreachable(0, "Unreachable", f"its certificate is not trusted, in {timeout_s} s")


def test_who_has_what_is_known_without_the_pods(node, pods):
    """PodResources has the names, the checkpoint the uids: of init containers too."""
    with StubPlugin(node, {f"GPU-{i}": i // 4 for i in range(8)}) as plugin:
        plugin.until_listed()
        inits = [real_container("first", 3, runs_s=0.1)]
        for name in ("one", "two"):
            pods.create(real_pod(name, real_container("main", 2), inits=inits, nodeName=node.name))
        uids = {name: pods.until(name, is_running)["metadata"]["uid"] for name in ("one", "two")}
        pods.delete("two")
        devices = PodResources(node.pod_resources_socket)
        found = asyncio.run(KubeletView(Unreadable(), devices, node.checkpoint).snapshot())
        assert (found.pods, "not trusted" in found.error) == (None, True)
        assert {(one.name, one.container, one.uid) for one in found.recorded or ()} == {
            ("one", "first", uids["one"]),
            ("one", "main", uids["one"]),
        }
        held = {(one.name, one.container): one.ids for one in found.recorded or ()}
        assert {key: held[key] for key in holders(node)} == holders(node)


def test_a_plugin_that_cannot_read_the_pods_offers_no_gpu(
    control_plane, node_tools, pods, tmp_path
):
    """Unless it is set to; then what pods got is reported, and `/readyz` says what is wrong."""
    deploy_plugin(control_plane)
    other = tmp_path / "ca.crt"
    other.write_bytes(Authority("another").certificate)
    trust = ("--kubelet-ca", str(other))
    with KubeletNode(control_plane, "blind", node_tools) as node:
        user = plugin_kubeconfig(control_plane, node.name)

        def annotations():
            path = f"/api/v1/nodes/{node.name}"
            return control_plane.client.get(path).json()["metadata"].get("annotations", {})

        plugin = start_plugin(node, user, "dgx-1-v100", *trust, status=503)
        await_so(lambda: names.TOPOLOGY in annotations(), "the topology")
        status = plugin.get("/readyz").text
        assert status.startswith("pods unknown: the kubelet's pods cannot be read: ")
        assert "its certificate is not trusted" in status
        registered = f'coterie_plugin_registered{{resource="{RESOURCE}"}}'
        assert f"{registered} 0.0" in plugin.get("/metrics").text
        plugin.program.stop()

        flags = (*trust, "--register-blind")
        plugin = start_plugin(node, user, "dgx-1-v100", *flags, name="again", status=503)
        await_so(lambda: f"{registered} 1.0" in plugin.get("/metrics").text, "the registration")
        pods.create(real_pod("served", real_container("main", 2), nodeName=node.name))
        uid = pods.until("served", is_running)["metadata"]["uid"]
        await_so(lambda: decode_devices(annotations()[names.DEVICES]).holds != (), "the report")
        (hold,) = decode_devices(annotations()[names.DEVICES]).holds
        assert (hold.uid, hold.name, hold.container) == (uid, "served", "main")
        assert hold.ids == holders(node)["served", "main"]
        assert "its certificate is not trusted" in plugin.get("/readyz").text
        pods.clear()
    control_plane.kubectl("delete", "node", "blind")


@pytest.mark.parametrize(
    ("call", "right"),
    [(KubeletClient.pods, "nodes/pods"), (KubeletClient.topology_manager, "nodes/configz")],
)
def test_missing_rights_are_named(control_plane, node, call, right):
    """Whoever installs the plugin without its role reads what it lacks."""
    name = f"without-{right.removeprefix('nodes/')}"
    control_plane.kubectl("create", "serviceaccount", name)
    config = control_plane.service_account("default", name)
    with pytest.raises(KubeError) as caught:
        query(node, config, call)
    assert caught.value.status == 403
    assert f"needs verb get on {right}" in caught.value.detail
    assert f"user=system:serviceaccount:default:{name}" in caught.value.detail


def test_unknown_credentials_are_reported(control_plane, node, tmp_path):
    """A token of another cluster."""
    config = tmp_path / "kubeconfig"
    authority = control_plane.authority.certificate
    config.write_text(kubeconfig(control_plane.url, authority, "forged"), encoding="utf-8")
    with pytest.raises(KubeError) as caught:
        query(node, config, KubeletClient.pods)
    assert caught.value.status == 401
    assert "authentication.webhook.enabled" in caught.value.detail


def test_certificates_are_checked(node, account, tmp_path):
    """By authority, and by the name that one says."""
    assert query(node, account, KubeletClient.pods, server_name=node.name)
    assert query(node, account, KubeletClient.pods, is_verified=False)
    other = tmp_path / "ca.crt"
    other.write_bytes(Authority("another").certificate)
    for trust in ({"ca_file": other}, {"server_name": "another"}):
        with pytest.raises(Unreachable) as caught:
            query(node, account, KubeletClient.pods, **trust)
        assert "its certificate is not trusted" in caught.value.detail
