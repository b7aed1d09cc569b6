"""In a bundle with hashed names no string is left that a user chose, wherever it was."""

from __future__ import annotations

import json
import random
import string
from dataclasses import asdict
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_coterie.bundle import Contents, NameHashes
from kubectl_coterie.bundle.settings import config_names, parsed_configs, policies_of
from kubectl_coterie.cluster import Read
from kubectl_coterie.installation import programs_of
from kubectl_coterie.installation.interest import slim_node, slim_pod
from topology.annotations import DeviceHold, DevicesReport, encode_devices

if TYPE_CHECKING:
    from kubectl_coterie.cluster import Object

MARK = "zqx"
"""In every string that a user chose; a hash has no such letters."""
UID = "6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e01"
GPU = f"GPU-{UID}"
ENDS = string.ascii_lowercase + string.digits


class Chosen:
    """Names that people choose, each with the mark; the same for the same seed."""

    def __init__(self, seed):
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def name(self):
        """Of an object (RFC 1123)."""
        n_parts = self._random.randint(1, 3)
        parts = ("".join(self._random.choices(ENDS, k=3)) for _ in range(n_parts))
        return MARK + "-".join(parts)

    def host(self):
        """A host with domains of its own."""
        return f"{self.name()}.gpu.{self.name()}.corp"

    def value(self):
        """Of a label or taint."""
        return self._random.choice(("{0}", "{0}_{1}", "{0}.A")).format(self.name(), self.name())

    def key(self):
        """Of a label, taint or resource."""
        return f"{self.name()}.example/{self.name()}"

    def user(self):
        """As identity providers name people."""
        form = self._random.choice(("{0}", "{0}@{1}", "oidc:{0}"))
        return form.format(self.name(), self.host())

    def node(self):
        """A short name or one with domains."""
        return self._random.choice((self.name(), self.host()))


class Cluster:
    """A cluster whose names are drawn."""

    def __init__(self, seed):
        new = self.new = Chosen(seed)
        self.node = new.node()
        self.pod, self.namespace, self.container = new.name(), new.name(), new.name()
        self.group, self.scheduler = new.value(), new.name()
        self.resource, self.zone = new.key(), new.value()
        self.user, self.host = new.user(), new.host()
        self.image = f"{new.host()}:5000/{new.name()}/coterie/extender:1.2.3"
        self.secret, self.settings, self.path = new.name(), new.name(), new.name()

    def a_node(self):
        """With labels and taints of its users, and a message that names a host."""
        hold = DeviceHold(UID, self.namespace, self.pod, self.container, "nvidia.com/gpu", (GPU,))
        report = encode_devices(DevicesReport(holds=(hold,)))
        counts = {"nvidia.com/gpu": "8", self.resource: "1", "pods": "110"}
        name = self.new.name()
        return {
            "metadata": {
                "name": self.node,
                "uid": UID,
                "labels": {
                    "kubernetes.io/hostname": self.node.partition(".")[0],
                    "topology.kubernetes.io/zone": self.zone,
                    "topology.kubernetes.io/rack": self.new.value(),
                    f"topology.{self.new.key()}": self.new.value(),
                    "nvidia.com/mig.config": self.new.value(),
                    self.new.name(): self.new.value(),
                },
                "annotations": {"coterie.gpu/devices": report},
            },
            "spec": {
                "taints": [
                    {"key": self.new.key(), "value": self.new.value(), "effect": "NoSchedule"},
                    {"key": self.new.name(), "effect": "NoExecute"},
                ]
            },
            "status": {
                "capacity": counts,
                "allocatable": counts,
                "conditions": [{"type": "Ready", "message": f"{name} at {self.new.name()}"}],
            },
        }

    def a_pod(self):
        """A user's, which waits for a volume."""
        limits = {"nvidia.com/gpu": "2", self.resource: "1"}
        return {
            "metadata": {
                "name": self.pod,
                "namespace": self.namespace,
                "labels": {"app": self.new.value()},
                "annotations": {"coterie.gpu/group": self.group, "coterie.gpu/group-domain": "any"},
            },
            "spec": {
                "nodeName": self.node,
                "schedulerName": self.scheduler,
                "runtimeClassName": self.new.name(),
                "containers": [{"name": self.container, "resources": {"limits": limits}}],
            },
            "status": {
                "conditions": [{"message": f'persistentvolumeclaim "{self.new.name()}" not found'}]
            },
        }

    def a_program(self):
        """An extender in a namespace of its own, which waits for its image."""
        name = self.new.name()
        environment = {
            "COTERIE_EXTENDER_SCHEDULER_NAMES": f"{self.scheduler}, {self.new.name()}",
            "COTERIE_EXTENDER_LEASE": f"{self.new.name()}/{self.new.name()}",
            "COTERIE_EXTENDER_RESOURCES": f"nvidia.com/gpu,{self.resource}",
            "COTERIE_EXTENDER_GROUP_LEVELS": f"{self.new.name()}={self.new.key()}",
            "COTERIE_EXTENDER_DECISION_LOG": f"/var/log/{self.path}/decisions",
            "COTERIE_EXTENDER_TLS_CERT": f"/etc/{self.new.name()}/tls.crt",
        }
        arguments = [f"--kubeconfig=/etc/{self.path}/a", f"--lease={name}/{self.new.name()}", "-v"]
        waits = {"reason": "ImagePullBackOff", "message": f'Back-off pulling "{self.image}"'}
        container = {
            "name": self.new.name(),
            "image": self.image,
            "args": arguments,
            "env": [{"name": key, "value": value} for key, value in environment.items()],
        }
        volumes = [
            {"secret": {"secretName": self.secret}},
            {"configMap": {"name": self.settings}},
            {"hostPath": {"path": f"/etc/{self.new.name()}"}},
        ]
        return {
            "metadata": {"name": name, "namespace": self.new.name()},
            "spec": {"nodeName": self.node, "containers": [container], "volumes": volumes},
            "status": {
                "containerStatuses": [{"name": container["name"], "state": {"waiting": waits}}]
            },
        }

    def a_config(self) -> Read[Object]:
        """kube-scheduler's, with plugins' arguments of the users."""
        config = {
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": f"/etc/{self.new.name()}/scheduler.conf"},
            "leaderElection": {
                "resourceNamespace": self.new.name(),
                "resourceName": self.new.name(),
            },
            "profiles": [
                {
                    "schedulerName": self.new.name(),
                    "pluginConfig": [{"args": {"addedAffinity": self.new.name()}}],
                }
            ],
            "extenders": [
                {
                    "urlPrefix": f"https://{self.new.name()}.{self.new.name()}.svc:8443",
                    "tlsConfig": {
                        "caFile": f"/etc/{self.new.name()}/ca.crt",
                        "caData": self.new.name(),
                        "serverName": self.new.host(),
                    },
                    "managedResources": [{"name": self.resource}],
                }
            ],
        }
        data: Object = {"data": {f"{self.new.name()}.yaml": json.dumps(config)}}
        return Read(data)

    def a_policy(self):
        """Of a release of the chart; its rule names accounts and resources."""
        name = f"{self.new.name()}-own-keys"
        account = f"system:serviceaccount:{self.new.name()}:{self.new.name()}-extender"
        rule = {"apiGroups": [""], "resources": ["pods/binding"]}
        return {
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "coterie"}},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [{"expression": f"request.userInfo.username != '{account}'"}],
            },
        }

    def a_log(self):
        """Lines of JSON, of klog, and of people."""
        return "\n".join(
            (
                json.dumps({"event": "bound", "pod": f"{self.new.name()}/{self.new.name()}"}),
                json.dumps({"event": "x", "group": self.new.value(), "zone": self.new.value()}),
                json.dumps({"event": "object_unreadable", "object": f"a/{self.new.name()}"}),
                json.dumps({"event": "x", "error": f'secrets "{self.new.name()}" not found'}),
                f'E1125 a.go:12] "Failed" pod="{self.new.name()}/{self.new.name()}" n=1',
                f'E1125 nodes "{self.new.host()}" not found, host {self.node.partition(".")[0]}',
                f"W dial tcp: lookup {self.new.host()} on 10.96.0.10:53: no such host",
                f"W https://{self.host}:6443/api/v1/namespaces/{self.namespace}/pods/{self.pod}",
                f"W {self.new.host()}:6443 refused; other.{self.host.partition('.')[2]}",
                f'W jobs.batch "{self.new.name()}" is forbidden: User "{self.new.user()}" cannot',
                f"W pod_{self.pod} {self.pod}_{self.namespace} {self.pod}-rank0 {self.group}",
                f"W system:node:{self.new.host()} mail {self.new.name()}@{self.new.host()}",
                f"W {self.container} {self.zone} {self.scheduler} {self.user} {self.secret}",
            )
        )

    def a_group(self):
        """Inferred from a Job that nothing else names, and no member of it is known besides."""
        return {
            "namespace": self.namespace,
            "name": f"indexed-job/{self.new.name()}/{UID[:8]}",
            "domain": f"{self.new.value()}/{self.new.value()}",
            "detail": f"the freest leaf ({self.new.value()}) has room for 1 of 2 members",
            "members": [{"name": self.new.name(), "node": self.new.node()}],
        }

    def contents(self):
        """What `support-bundle` collects of it."""
        found = Contents()
        pod, program = self.a_pod(), self.a_program()
        found.add("nodes.json", [slim_node(self.a_node(), {MARK})], kind="node")
        found.add("pods.json", [slim_pod(pod), slim_pod(program)], kind="pod")
        programs = [asdict(one) | {"kind": one.kind.value} for one in programs_of(program)]
        assert programs
        found.add("programs.json", programs, kind="pod")
        found.add("versions.json", {"images": [self.image]})
        configs = {f"{self.new.name()}/{self.settings}": self.a_config()}
        found.known += config_names(configs)
        found.add("scheduler-config.json", parsed_configs(configs))
        found.add("policies.json", policies_of([self.a_policy()]), kind="policy")
        lease = {"spec": {"holderIdentity": f"{self.new.name()}_6d1c"}}
        found.add(f"leases/{self.namespace}_{self.secret}.json", lease)
        found.add(
            "events.json",
            [
                {
                    "involvedObject": {
                        "kind": "Pod",
                        "name": self.pod,
                        "namespace": self.namespace,
                    },
                    "message": f"on {self.node} with {self.new.host()}:443",
                    "reportingInstance": self.new.host(),
                }
            ],
            kind="event",
        )
        found.add(
            "read-api/pods.json",
            [
                {
                    "name": self.pod,
                    "namespace": self.namespace,
                    "node": self.node,
                    "containers": [{"name": self.new.name(), "gpus": [0]}],
                    "group": f"{self.new.name()}/{self.new.value()}",
                }
            ],
            kind="pod",
        )
        group = {
            "name": self.new.value(),
            "domain": self.new.value(),
            "members": [{"name": self.new.name()}],
        }
        waiting = {"name": self.new.name(), "namespace": self.namespace, "group": group}
        found.add("read-api/pending.json", [waiting], kind="pod")
        domain = {"level": "leaf", "family": "own", "name": self.new.value()}
        node = {"name": self.node, "zone": self.new.value(), "domains": [domain]}
        found.add("read-api/nodes.json", [node], kind="node")
        found.add("read-api/groups.json", [self.a_group()], kind="group")
        about = f"kube-scheduler's certificate is in Secret {self.namespace}/{self.secret}"
        found.add("check.json", {"items": [{"about": about}, {"about": self.refused()}]})
        found.add_log(f"extender/{self.namespace}_{self.pod}/a.log", Read(self.a_log()))
        state = {"nodes": {self.node: 1}, "pods": [{"pod": f"{self.namespace}/{self.new.name()}"}]}
        found.add_log("extender/state.json", Read(json.dumps(state, indent=1)))
        found.add_log("extender/metrics.txt", Read(f'x{{zone="{self.new.name()}"}} 1\n'))
        found.lack("nodes.json of " + self.node, self.refused())
        return found

    def refused(self):
        """The API server's sentence for a missing right."""
        return f'nodes is forbidden: User "{self.user}" cannot list resource "nodes" at {self.host}'


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_string_of_a_user_is_left(seed):
    """Names of objects, hosts, users, labels, groups, registries, paths, in any file."""
    contents = Cluster(seed).contents()
    members = contents.members({}, NameHashes(b"key"))
    for path, octets in members.items():
        assert MARK not in path
        left = [line for line in octets.decode().splitlines() if MARK in line]
        assert left == [], path


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_every_cluster_has_is_left(seed):
    """Else nothing could be read from it."""
    members = Cluster(seed).contents().members({}, NameHashes(b"key"))
    text = {path: octets.decode() for path, octets in members.items()}
    assert '"nvidia.com/gpu": "8"' in text["nodes.json"]
    assert '"pods": "110"' in text["nodes.json"]
    assert '"pods/binding"' in text["policies.json"]
    assert "extender:1.2.3" in text["versions.json"]
    assert text["extender/metrics.txt"].startswith('x{zone="')
    assert 'cannot list resource \\"nodes\\"' in text["check.json"]
