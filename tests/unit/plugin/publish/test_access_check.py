"""What is said where containers may not be able to use their GPUs, when, and to whom."""

from __future__ import annotations

import asyncio

from kube.errors import Unreachable
from kube.objects import ObjectKey
from plugin.container import ContainerAccess
from plugin.machine import DeviceAccess
from plugin.publish import AccessCheck, AccessChecked, AccessEvent, EventFailed
from tests.unit.plugin.node_values import NODE, node_pod
from tests.virtual_time import run_at_once

LACK = "CDI specification of GPUs mounts no libcuda.so"
ENVVAR = "device_list_strategy envvar"
DEFAULT = (
    f"{ENVVAR} needs the vendor's container runtime, which may not be the node's default: "
    "this pod has it by RuntimeClass nvidia, and pods without it get no GPU"
)
PLUGIN = node_pod("plugin", runtime_class="nvidia")
OTHER = node_pod("other", runtime_class="kata")


def access(*lacks, needs_runtime=""):
    """What containers get."""
    return DeviceAccess(lambda _: ContainerAccess(), (), lacks, needs_runtime)


class Node:
    """A plugin on a node, and the API server that takes its Events."""

    def __init__(self, refusal=None):
        self.refusal = refusal
        self.events = []
        self.emitted: list[AccessEvent] = []
        self.check = AccessCheck(self, NODE, pod_uid=PLUGIN.uid, emit=self.emitted.append)

    async def create_event(self, event):
        """Keep it, or refuse it."""
        if self.refusal is not None:
            raise self.refusal
        self.events.append(event)

    def see(self, *seen):
        """Let it see one after another."""

        async def go():
            for one in seen:
                if isinstance(one, DeviceAccess):
                    self.check.see_access(one)
                else:
                    self.check.see_pods(one)
                await asyncio.sleep(0)
                await asyncio.sleep(0)

        asyncio.run(go())
        return self


def test_what_is_complete_is_not_mentioned():
    """Neither with CDI, nor where the vendor's runtime is the default one."""
    node = Node().see(access(), [PLUGIN, OTHER], access(), [OTHER])
    assert (node.check.problems, node.emitted, node.events) == ((), [], [])
    default = node_pod("plugin")
    node = Node().see(access(needs_runtime=ENVVAR), [default, OTHER])
    assert (node.check.problems, node.emitted, node.events) == ((), [], [])


def test_what_a_specification_lacks_is_an_event_on_the_node():
    """As the kubelet's own Events: in `kubectl describe node`."""
    (event,) = Node().see(access(LACK)).events
    assert event.about == ObjectKey("", NODE, NODE)
    assert (event.is_warning, event.reason) == (True, "GpuAccessProblem")
    assert event.message == f"containers may get no usable GPU: {LACK}"
    assert (event.component, event.instance) == ("coterie-plugin", NODE)


def test_a_runtime_that_the_plugin_has_to_name_may_not_be_the_users():
    """A variable that no runtime reads is no error, and no GPU."""
    node = Node().see(access(LACK, needs_runtime=ENVVAR), [OTHER], [PLUGIN, OTHER])
    assert node.check.problems == (LACK, DEFAULT)
    assert node.emitted == [AccessChecked((LACK,)), AccessChecked((LACK, DEFAULT))]
    assert [one.message.endswith(DEFAULT) for one in node.events] == [False, True]


def test_a_problem_is_said_once_and_again_when_it_is_over():
    """Pods are seen every 30 s; a list without the plugin's own pod changes nothing."""
    needy = access(needs_runtime=ENVVAR)
    node = Node().see([PLUGIN], needy, [PLUGIN], [OTHER], needy, access())
    assert node.emitted == [AccessChecked((DEFAULT,)), AccessChecked(())]
    assert len(node.events) == 1


def test_an_event_that_cannot_be_written_is_logged():
    """The rest has it all the same."""
    node = Node(Unreachable(0, "Unreachable", "no route")).see(access(LACK))
    assert node.emitted[0] == AccessChecked((LACK,))
    (failed,) = node.emitted[1:]
    assert isinstance(failed, EventFailed)
    assert "no route" in failed.detail


def test_a_plugin_that_ends_writes_no_more():
    """The connection is closed."""

    async def go():
        node = Node()
        node.check.stop()
        node.check.see_access(access(LACK))
        node.check.stop()
        await asyncio.sleep(1000.0)
        assert node.events == []

    run_at_once(go())
