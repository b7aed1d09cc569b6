"""The extender's settings, each with its range and default, and those that decisions depend on.

docs/configuration.md and the flags of the command line are generated from the fields below and
those of `extender.config.connection_settings`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from extender.config.connection_settings import ConnectionSettings
from extender.embedded import RESOURCE_NAME
from extender.protocol import GROUP_KINDS
from extender.rules import Rules, families_of, is_pattern
from kube.settings import FileLayout
from topology.annotations import Prefer
from topology.errors import InvalidRequest, TopologyError, quote
from topology.model import DEFAULT_RESOURCE, WORTH_EXPECTED, parse_worth
from topology.value import Demand

__all__ = ["ENV_PREFIX", "ExtenderSettings"]

ENV_PREFIX = "COTERIE_EXTENDER_"

_LEVEL = re.compile(
    r"(?!any=)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    r"=(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_DEMAND = re.compile(r"[0-9]{1,3}(?::[0-9]{1,9}(?:\.[0-9]{1,9})?)?")


class ExtenderSettings(ConnectionSettings):
    """All settings; see each field."""

    layout: ClassVar[FileLayout] = FileLayout(
        flag="config", variable=f"{ENV_PREFIX}CONFIG", prefix=ENV_PREFIX
    )

    resources: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Extended resources that Coterie places, comma-separated; the same as "
            "`managedResources` in the scheduler's configuration. A node may serve several, such "
            "as whole GPUs and MIG profiles: whole GPUs come first, since a node's topology is "
            "that of the first resource that it has; the others are placed by count. By default "
            "what NVIDIA's device plugin registers.",
        ),
    ] = (DEFAULT_RESOURCE,)
    scheduler_names: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Schedulers whose pods are bound, comma-separated: the profiles that call "
            "this extender, by their `schedulerName`. A bind of another scheduler's pod is "
            "refused. A pod that was filtered is taken as that call described it: whoever may call "
            "both is trusted. By default that of `deploy/`. An embedded cluster takes every pod.",
        ),
    ] = ("coterie-scheduler",)
    candidate_limit: Annotated[
        int,
        Field(
            ge=0,
            le=20_000,
            description="Most nodes that filter names; 0 names all that fit (needed where another "
            "filter extender follows). The more there are, the more kube-scheduler's other scores "
            "(images, default spreading) matter, and the more each pod costs. With 1 "
            "kube-scheduler skips scoring, and its other scores have no effect.",
        ),
    ] = 20
    demand: Annotated[
        str,
        Field(
            description="Set sizes that future pods are expected to request, by which the free "
            "GPUs that a pod leaves are valued: `size` or `size:weight`, comma-separated, "
            "ascending, sizes 1..512, weights above 0 (default 1). By default the sizes that "
            "training jobs use, with equal weights.",
        ),
    ] = "1,2,3,4,8"
    loss_bounds: Annotated[
        tuple[Annotated[float, Field(gt=0, lt=1)], ...],
        Field(
            min_length=1,
            max_length=9,
            description="Upper bounds of the loss classes, shares of the machine's best bandwidth "
            "in 0..1, ascending, 1 to 9 of them; nodes within one class compare by what is left "
            "behind. 2 % is below what NCCL runs differ by, 10 % is the gap between link classes, "
            "above 30 % a set crosses to a slower kind of link.",
        ),
    ] = (0.02, 0.10, 0.30)
    prefer: Annotated[
        Prefer,
        Field(
            description="How nodes compare for pods of two or more GPUs without the annotation "
            "`coterie.gpu/prefer`: `balanced` keeps scarce GPUs free, so that a pod may get a "
            "slower machine's best set though a faster machine is free; `fastest` compares by "
            "GB/s, and `gpu_worth` does not count for such pods then."
        ),
    ] = Prefer.BALANCED
    gpu_worth: Annotated[
        tuple[str, ...],
        Field(
            description="What GPUs are worth beside others, as `pattern=number`, comma-separated: "
            "a regular expression found in the model's name, case ignored, and a number above 0, "
            "such as `h100=12,l4=0.4`; the first that is found counts. By default the built-in "
            "table, in which a V100 is worth 1; the label `coterie.gpu/worth` of a Node counts "
            "before both.",
        ),
    ] = ()
    staleness_bound_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Seconds, above 0 to 3600, after which state that its source has not "
            "refreshed is not answered from; 41 or more, since a quiet API server sends something "
            "every 33 s, and its loss is detected 8 s later. 60: 19 s more than that minimum.",
        ),
    ] = 60.0
    preempts_for_topology: Annotated[
        bool,
        Field(
            description="Whether a pod may preempt where enough GPUs are free and no set of them "
            "satisfies it. Such nodes are then refused as ones that evictions may help, and "
            "kube-scheduler 1.38 and later calls preempt for them. Before 1.38 it does not, and "
            "attempts a useless preemption for each such pod: leave it false there."
        ),
    ] = False
    group_kinds: Annotated[
        tuple[str, ...],
        Field(
            description="Whose labels and annotations say the group of a pod without "
            "`coterie.gpu/group`, comma-separated: `kueue` (plain pods), `koordinator`, "
            "`yunikorn`, `leaderworkerset`. By default none: only Coterie's own keys make pods "
            "wait for each other.",
        ),
    ] = ()
    group_levels: Annotated[
        tuple[str, ...],
        Field(
            description="Labels of nodes that say where they are in the network, besides those of "
            "topograph, GKE, EKS and OKE that Coterie reads by itself: `level=label-key`, "
            "comma-separated, nearest first, such as `leaf=example.com/rack,spine=example.com/row`."
            " Pods name a level in `coterie.gpu/group-domain`. A node with one of these labels is "
            "placed by them alone, below its zone and region.",
        ),
    ] = ()
    claim_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Seconds, above 0 to 3600, for which devices are kept for a group that is "
            "complete and has a place, until all its members are bound; more than "
            "`http_timeout_s`, for which binds are held at most. 60: twice the httpTimeout of the "
            "manifests in `deploy/`.",
        ),
    ] = 60.0
    http_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=600,
            description="`httpTimeout` of this extender in the scheduler's configuration, in "
            "seconds, above 0 to 600. A bind or preemption has 0.8 of it for all its requests to "
            "the API server, and a bind of a group's member is held for 0.6 of it at most. 5 is "
            "kube-scheduler's default; the manifests in `deploy/` set 30 in both places.",
        ),
    ] = 5.0
    rating_budget_s: Annotated[
        float,
        Field(
            gt=0,
            le=60,
            description="Processor seconds, above 0 to 60, that filter and prioritize may each "
            "take for rating sets on kinds of nodes that they meet for the first time. What is "
            "left is ranked by count for this call and rated beside, so that the next call knows "
            "it. 0.1: kube-scheduler places no other pod meanwhile.",
        ),
    ] = 0.1
    wake_after_s: Annotated[
        float,
        Field(
            gt=0,
            le=300,
            description="Seconds, above 0 to 300, that a pod which fits again is left to the "
            "scheduler before the extender requeues it through an annotation. 0.5: its own retry "
            "after a change that it saw takes less.",
        ),
    ] = 0.5
    events: Annotated[
        Literal["off", "warnings", "all"],
        Field(
            description="Which Events the extender writes on pods and nodes (`off`, `warnings`, "
            "`all`). `all` adds one for each pod that was placed, with its GPUs and GB/s; by "
            "default what needs action, and one when a group is placed, since every Event is a "
            "write to etcd."
        ),
    ] = "warnings"
    assume_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Seconds, above 0 to 3600, that a plan is kept for a binding that was not "
            "confirmed; a live extender needs more than twice `http_timeout_s`, so that none ends "
            "during a bind. 75: two and a half times the httpTimeout of `deploy/`.",
        ),
    ] = 75.0
    decision_log: Annotated[
        Path | None,
        Field(
            description="File to append every decision to, for `replay`; off by default, since "
            "5,000 node names make 100 KB a call."
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(
            description="Lowest level that is logged (`debug`, `info`, `warning`, `error`). "
            "`info` writes one line per decision."
        ),
    ] = "info"

    @field_validator("resources")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value) or not all(re.fullmatch(RESOURCE_NAME, v) for v in value):
            msg = "expected different extended resources, each domain/name"
            raise ValueError(msg)
        return value

    @field_validator("group_kinds")
    @classmethod
    def _are_kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value) or not set(value) <= set(GROUP_KINDS):
            msg = f"expected different ones of: {', '.join(GROUP_KINDS)}"
            raise ValueError(msg)
        return value

    @field_validator("loss_bounds")
    @classmethod
    def _ascend(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)):
            msg = "expected ascending bounds"
            raise ValueError(msg)
        return value

    @field_validator("gpu_worth")
    @classmethod
    def _are_worths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            pattern, _, worth = one.rpartition("=")
            if not is_pattern(pattern) or parse_worth(worth) is None:
                msg = (
                    "expected pattern=number, comma-separated: regular expressions, each with "
                    f"{WORTH_EXPECTED}"
                )
                raise ValueError(msg)
        return value

    @field_validator("group_levels")
    @classmethod
    def _are_levels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if not _LEVEL.fullmatch(one):
                msg = (
                    f"level is {quote(one)}, expected level=label-key, comma-separated: a name of "
                    "lower-case letters, digits and hyphens, and the key of a node's label"
                )
                raise ValueError(msg)
        try:
            families_of([_level(one) for one in value])
        except InvalidRequest as error:
            raise ValueError(str(error)) from error
        return value

    @field_validator("demand")
    @classmethod
    def _is_demand(cls, value: str) -> str:
        if not all(_DEMAND.fullmatch(part) for part in value.split(",")):
            msg = "expected size or size:weight, comma-separated, such as 1,2:0.5,4"
            raise ValueError(msg)
        try:
            _demand(value)
        except TopologyError as error:
            raise ValueError(str(error)) from error
        return value

    @property
    def rules(self) -> Rules:
        """The part that decisions depend on."""
        return Rules(
            resources=self.resources,
            candidate_limit=self.candidate_limit,
            loss_bounds=self.loss_bounds,
            demand=_demand(self.demand),
            staleness_bound_s=self.staleness_bound_s,
            assume_s=self.assume_s,
            wake_after_s=self.wake_after_s,
            scheduler_names=self.scheduler_names if self.cluster is None else (),
            gpu_worth=tuple(_worth(one) for one in self.gpu_worth),
            preempts_for_topology=self.preempts_for_topology,
            claim_s=self.claim_s,
            group_levels=tuple(_level(one) for one in self.group_levels),
            group_kinds=self.group_kinds,
            prefer=self.prefer,
        )


def _demand(text: str) -> Demand:
    parts = [part.partition(":") for part in text.split(",")]
    return Demand(tuple((int(size), float(weight or 1)) for size, _, weight in parts))


def _level(text: str) -> tuple[str, str]:
    level, _, key = text.partition("=")
    return level, key


def _worth(text: str) -> tuple[str, float]:
    pattern, _, worth = text.rpartition("=")
    return pattern, float(worth)
