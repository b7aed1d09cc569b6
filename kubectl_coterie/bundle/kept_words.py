"""Words that a bundle with hashed names keeps: they are the same on all clusters.

Names of Kubernetes, of NVIDIA and of Coterie, and values of enumerations. Whoever gives an object
such a name loses nothing by it; replaced, it would make every answer unreadable.
"""

from __future__ import annotations

__all__ = [
    "GROUP_KINDS",
    "KEPT",
    "PATH_WORDS",
    "is_public_host",
    "is_public_key",
    "is_public_label",
]

GROUP_KINDS = frozenset(
    {
        *("kueue", "koordinator", "yunikorn", "leaderworkerset", "podgroup"),
        *("indexed-job", "jobset", "coscheduling"),
    }
)
"""With which names of groups begin that are inferred, as in `indexed-job/train`."""
KEPT = frozenset(
    {
        *GROUP_KINDS,
        *("default", "kube-system", "kube-public", "kube-node-lease"),
        *("coterie-system", "coterie-node", "coterie-system-node"),
        *("default-scheduler", "coterie-scheduler", "coterie-extender", "coterie-plugin"),
        *("coterie-reader", "coterie-second-scheduler", "coterie-scheduler-config"),
        *("coterie", "extender", "plugin", "kube-scheduler", "scheduler", "scheduler-config.yaml"),
        *("kubernetes", "kubernetes-admin", "kube", "kubelet", "localhost", "linux", "amd64"),
        *("arm64", "nvidia", "nvidia-legacy", "nvidia-cdi", "gpu", "gpus", "main", "node", "nodes"),
        *("pod", "pods", "namespace", "namespaces", "container", "containers", "name", "kind"),
        *("true", "false", "none", "null", "unknown", "any", "all", "ok", "yes", "no", "info"),
        *("warning", "error", "debug", "failed", "free", "held", "planned", "unhealthy", "ready"),
        *("running", "pending", "succeeded", "Running", "Pending", "Succeeded", "Failed"),
        *("nvlink", "numa", "pcie-switch", "required", "preferred", "nvlink-domain"),
        *("device-plugin", "reporter", "removed"),
        *("nvidia-device-plugin-daemonset", "nvidia-device-plugin", "nvidia-device-plugin-ds"),
        *("nvidia-gpu-device-plugin", "nvidia-device-plugin-ctr", "nvidia-driver-daemonset"),
    }
)
PATH_WORDS = frozenset(
    {
        *(
            "bin",
            "boot",
            "dev",
            "etc",
            "home",
            "lib",
            "lib64",
            "local",
            "log",
            "logs",
            "mnt",
            "opt",
        ),
        *(
            "proc",
            "root",
            "run",
            "sbin",
            "share",
            "srv",
            "sys",
            "tmp",
            "usr",
            "var",
            "data",
            "host",
        ),
        *(
            "cache",
            "conf",
            "config",
            "certs",
            "pki",
            "secrets",
            "ssl",
            "tls",
            "token",
            "run-nvidia",
        ),
        *("kubernetes", "kubelet", "kubelet.conf", "pod-resources", "device-plugins", "plugins"),
        *("kubelet.sock", "scheduler.conf", "extender.conf", "serviceaccount", "scheduler-tls"),
        *("extender-tls", "tls.crt", "tls.key", "ca.crt", "ca.pem", "cdi", "driver", "toolkit"),
        *(
            "nvidia",
            "nvidia-caps",
            "firmware",
            "modprobe",
            "validations",
            "coterie",
            "measurements",
        ),
        *("containerd", "docker", "kubeconfig", "scheduler-config.yaml", "config.yaml", "x86_64"),
    }
)
"""Components of paths that say nothing of who chose them."""
_PUBLIC_DOMAINS = (
    *("kubernetes.io", "k8s.io", "nvidia.com", "amd.com", "intel.com", "mellanox.com"),
    *("coterie.gpu", "google.com", "gke.io", "amazonaws.com", "eks.amazonaws.com", "azure.com"),
    *("oraclecloud.com", "openshift.io", "istio.io", "rdma"),
)
"""Of label keys, taints and resources, with those below them."""
_PUBLIC_HOSTS = frozenset(
    {
        *("localhost", "kubernetes", "registry.k8s.io", "k8s.gcr.io", "gcr.io", "nvcr.io"),
        *("docker.io", "index.docker.io", "ghcr.io", "quay.io", "public.ecr.aws", "github.com"),
        *(
            "mcr.microsoft.com",
            "kubernetes.io",
            "k8s.io",
            "set-your-registry.invalid",
            "nvidia.com",
        ),
    }
)
_PUBLIC_LABELS = (
    *("nvidia.com/gpu.", "nvidia.com/cuda.", "nvidia.com/gfd.", "nvidia.com/mig.", "coterie.gpu/"),
    *("kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type"),
    *("app.kubernetes.io/part-of", "feature.node.kubernetes.io/"),
)
_CHOSEN_LABELS = frozenset({"nvidia.com/mig.config", "nvidia.com/gpu.workload.config"})


def is_public_key(key: str) -> bool:
    """Whether a label's, taint's or resource's key is of Kubernetes or a vendor.

    >>> is_public_key("nvidia.com/gpu"), is_public_key("example.com/team"), is_public_key("pool")
    (True, False, False)
    """
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(
        domain == one or domain.endswith(f".{one}") for one in _PUBLIC_DOMAINS
    )


def is_public_host(host: str) -> bool:
    """Whether a host is one that everybody calls."""
    return host in _PUBLIC_HOSTS


def is_public_label(key: str) -> bool:
    """Whether the values of a label say what a machine is, and not what people call it."""
    return key.startswith(_PUBLIC_LABELS) and key not in _CHOSEN_LABELS
