"""What goes into the images: Debian's packages, locked wheels, the project's code, kube-scheduler.

Each makes a layer or the tree of one; how an archive is written is not known here.
"""

from deploy.release.content.base import base_layer
from deploy.release.content.cached import CachedLayer, Component
from deploy.release.content.debian_lock import (
    LOCK,
    RELEASE,
    DebianPackage,
    read_lock,
    renew_lock,
    write_lock,
)
from deploy.release.content.dependencies import dependency_layer, locked_pins, program_lock
from deploy.release.content.kube_scheduler import scheduler_tree, scheduler_version
from deploy.release.content.kubectl import PYTHONS, kubectl_tree, launcher_tree, merged
from deploy.release.content.program import PROGRAMS, SITE, Program, program_tree
from deploy.release.content.pruning import (
    BASE_UNUSED,
    DEPENDENCIES_UNUSED,
    OWN_UNUSED,
    is_unused,
    pruned,
)

__all__ = [
    "BASE_UNUSED",
    "DEPENDENCIES_UNUSED",
    "LOCK",
    "OWN_UNUSED",
    "PROGRAMS",
    "PYTHONS",
    "RELEASE",
    "SITE",
    "CachedLayer",
    "Component",
    "DebianPackage",
    "Program",
    "base_layer",
    "dependency_layer",
    "is_unused",
    "kubectl_tree",
    "launcher_tree",
    "locked_pins",
    "merged",
    "program_lock",
    "program_tree",
    "pruned",
    "read_lock",
    "renew_lock",
    "scheduler_tree",
    "scheduler_version",
    "write_lock",
]
