"""Compare a container's GPUs with its pod's plan: what `helm test` runs, inside the container.

Reads `PLAN`, the annotation `coterie.gpu/plan` of its own pod, and `NVIDIA_VISIBLE_DEVICES`, or the
device nodes where GPUs come by CDI. Exits with 0 where they agree, else with a sentence.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

CONTAINER = "compare-plan"
"""The name of the one container of templates/tests/plan.yaml."""


def main() -> None:
    """Say which GPUs are planned and found; exit with 1 where they differ."""
    text = os.environ.get("PLAN", "")
    if not text:
        sys.exit("the pod has no plan (annotation coterie.gpu/plan): Coterie did not place it")
    planned = [one["ids"] for one in json.loads(text)["containers"] if one["name"] == CONTAINER]
    if not planned:
        sys.exit("the plan names no GPU: the node has no usable topology (coterie.gpu/topology)")
    ids = planned[0]
    if os.environ["BY_CDI"] == "true":
        nodes = [one.name for one in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", one.name)]
        compare(str(len(ids)), str(len(nodes)), "number of GPUs")
    else:
        visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
        # A time-sliced GPU's id is its UUID, two colons and a number.
        compare(listed({one.partition("::")[0] for one in ids}), listed(set(visible)), "GPUs")


def listed(ids: set[str]) -> str:
    """Ids in order, separated by commas."""
    return ",".join(sorted(ids))


def compare(planned: str, found: str, what: str) -> None:
    """Exit with a sentence where they differ."""
    if planned != found:
        sys.exit(f"{what}: the plan says {planned}, the container has {found}")
    sys.stdout.write(f"{what}: {found}, as planned\n")


if __name__ == "__main__":
    main()
