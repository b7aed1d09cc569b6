"""What makes a cluster's Services work: kube-proxy, and CoreDNS for their names.

Both run as processes in the test's network and not as pods: they are not what is tested.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.control.processes import Program
    from tests.cluster.programs.debian import Nft

__all__ = ["start_kube_proxy", "start_name_server"]

_HEALTH = "127.0.0.1:10256"
_METRICS = "127.0.0.1:10249"
_READY = "127.0.0.1:8181"
_COREFILE = """\
.:53 {{
    errors
    ready {ready}
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
    }}
}}
"""


def start_kube_proxy(plane: ControlPlane, node: str, nft: Nft) -> Program:
    """Start the one of all nodes, since they share a network; `node` must have registered."""
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig("system:kube-proxy"))},
        "hostnameOverride": node,
        "healthzBindAddress": _HEALTH,
        "metricsBindAddress": _METRICS,
        # The machine's own limits, which only its own network may change.
        "conntrack": {
            **dict.fromkeys(("maxPerCore", "min"), 0),
            **dict.fromkeys(("tcpEstablishedTimeout", "tcpCloseWaitTimeout"), "0s"),
        },
    }
    file = plane.folder / "kube-proxy.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return plane.start_program(
        "kube-proxy",
        [str(plane.binaries.kube_proxy), "--config", str(file)],
        f"http://{_HEALTH}/healthz",
        environment=nft.environment,
    )


def start_name_server(plane: ControlPlane, coredns: Path) -> Program:
    """Start CoreDNS, at every address of this network."""
    kubeconfig = plane.kubeconfig("coredns", "system:masters")
    file = plane.folder / "Corefile"
    text = _COREFILE.format(ready=_READY, kubeconfig=kubeconfig)
    file.write_text(text, encoding="utf-8")
    return plane.start_program(
        "coredns", [str(coredns), "-conf", str(file)], f"http://{_READY}/ready"
    )
