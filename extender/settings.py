"""How the extender is configured: flag over environment over file over default.

What it answers: the effective settings, checked, or what is wrong with them. Unknown keys of the
file and unknown `COTERIE_EXTENDER_*` variables stop the start: a misspelt setting must not be
silently without effect. docs/configuration.md is generated from the fields below.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, SettingsConfigDict

from extender.cluster import RESOURCE_NAME, parse_cluster, read_cluster
from extender.documents import read_yaml
from extender.engine import Rules
from extender.errors import DocumentError, SettingsError
from extender.faults import first_fault
from topology.errors import TopologyError, quote
from topology.names import DEFAULT_RESOURCE
from topology.remainder import Demand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_settings import PydanticBaseSettingsSource

    from extender.cluster import ClusterSpec

__all__ = ["CONFIG_VARIABLE", "ENV_PREFIX", "Settings", "load_settings"]

ENV_PREFIX = "COTERIE_EXTENDER_"
CONFIG_VARIABLE = "COTERIE_EXTENDER_CONFIG"
"""Names the settings file; the one variable of the prefix that is no setting."""

_FILE = TypeAdapter(dict[str, Any])
_FILE_SUFFIXES = (".yaml", ".yml", ".toml")
_DEMAND = re.compile(r"[0-9]{1,3}(?::[0-9]{1,9}(?:\.[0-9]{1,9})?)?")


class Settings(BaseSettings):
    """All settings; see each field."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    cluster: Annotated[
        str,
        Field(
            min_length=1,
            description="Embedded cluster: machines and counts in one line (`8x dgx-h100, 4x "
            "dgx-1-v100`), or the path of a file that ends in .yaml, .yml or .toml. No default: a "
            "cluster that nobody described would place pods on machines that nobody has.",
        ),
    ]
    listen_address: Annotated[
        str,
        Field(
            description="Address to listen on. Local by default: the wire has no authentication, "
            "and kube-scheduler runs beside the extender."
        ),
    ] = "127.0.0.1"
    listen_port: Annotated[
        int,
        Field(
            ge=0,
            le=65535,
            description="TCP port; 0 takes a free one, which the log event `ready` tells. "
            "8888 as in Kubernetes' own extender examples.",
        ),
    ] = 8888
    resources: Annotated[
        tuple[str, ...],
        NoDecode,
        Field(
            min_length=1,
            description="Extended resources that Coterie places, comma-separated; the same as "
            "`managedResources` in the scheduler's configuration. By default what NVIDIA's device "
            "plugin registers.",
        ),
    ] = (DEFAULT_RESOURCE,)
    candidate_limit: Annotated[
        int,
        Field(
            ge=0,
            le=20_000,
            description="Most nodes that filter names; 0 names all that fit (needed where another "
            "filter extender follows). 100 is kube-scheduler's own minFeasibleNodesToFind.",
        ),
    ] = 100
    demand: Annotated[
        str,
        Field(
            description="Set sizes expected to come, by which what is left behind is valued: "
            "`size` or `size:weight`, comma-separated, ascending, sizes 1..512, weights above 0 "
            "(default 1). The sizes that training jobs use, alike, since no demand is known yet.",
        ),
    ] = "1,2,3,4,8"
    loss_bounds: Annotated[
        tuple[Annotated[float, Field(gt=0, lt=1)], ...],
        NoDecode,
        Field(
            min_length=1,
            max_length=9,
            description="Upper bounds of the loss classes, shares of the machine's best bandwidth "
            "in 0..1, ascending, 1 to 9 of them; nodes within one class compare by what is left "
            "behind. 2 % is below what NCCL runs differ by, 10 % is the gap between link classes, "
            "above 30 % a set crosses to a slower kind of link.",
        ),
    ] = (0.02, 0.10, 0.30)
    staleness_bound_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Seconds, above 0 to 3600, after which state that its source has not "
            "refreshed is not answered from. The embedded cluster is never stale. 60: API server "
            "watches bookmark about once a minute.",
        ),
    ] = 60.0
    assume_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Seconds, above 0 to 3600, that a plan is kept for a binding nobody "
            "confirmed. 30: six times kube-scheduler's default httpTimeout of 5 s.",
        ),
    ] = 30.0
    keep_alive_s: Annotated[
        int,
        Field(
            ge=1,
            le=3600,
            description="Seconds, 1..3600, that an idle connection is kept. 120: kube-scheduler "
            "drops idle connections after 90 s, and does not retry on one that we dropped first.",
        ),
    ] = 120
    body_limit_bytes: Annotated[
        int,
        Field(
            ge=65_536,
            le=1 << 30,
            description="Largest request body, bytes, 65536 to 1 GiB. 8 MiB: 5,000 node names of "
            "253 characters and a pod of the largest size etcd stores are 3 MiB.",
        ),
    ] = 8 << 20
    decision_log: Annotated[
        Path | None,
        Field(
            description="File to append every decision to, for `replay`; off by default, since "
            "5,000 node names make 100 KB a call."
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="Least level that is logged. `info` writes one line per decision."),
    ] = "info"

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: object) -> object:
        """No setting is one, and pydantic would take `true` for the number 1."""
        if isinstance(value, bool):
            msg = "expected no truth value (YAML reads true, yes and on as one)"
            raise ValueError(msg)  # noqa: TRY004 - what pydantic turns into its own error
        return value

    @field_validator("resources", "loss_bounds", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(","))
        return value

    @field_validator("resources")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value) or not all(re.fullmatch(RESOURCE_NAME, v) for v in value):
            msg = "expected different extended resources, each domain/name"
            raise ValueError(msg)
        return value

    @field_validator("loss_bounds")
    @classmethod
    def _ascend(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)):
            msg = "expected ascending bounds"
            raise ValueError(msg)
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
        )

    def cluster_spec(self) -> ClusterSpec:
        """The description of the embedded cluster. Raises `ClusterSpecError`."""
        if self.cluster.endswith(_FILE_SUFFIXES):
            return read_cluster(Path(self.cluster))
        return parse_cluster(self.cluster)


def load_settings(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """Put the effective settings together; `flags` holds only those that were given.

    Raises `SettingsError`, naming the setting, its value and what was expected.
    """
    _check_environment()
    from_file = {} if config is None else _read_file(config)

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)

    try:
        return Layered(**flags)  # type: ignore[arg-type]  # checked by pydantic, key by key
    except ValidationError as error:
        msg = f"setting {first_fault(error, whole='values')}"
        raise SettingsError(msg) from error


def _check_environment() -> None:
    known = {f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields} | {CONFIG_VARIABLE}
    for name in sorted(os.environ):
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in known:
            expected = ", ".join(sorted(known))
            msg = f"environment variable {name} is no setting, expected one of: {expected}"
            raise SettingsError(msg)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, DocumentError) as error:
        msg = f"settings file {path} cannot be read: {error}"
        raise SettingsError(msg) from error
    try:
        return _FILE.validate_python({} if content is None else content)
    except ValidationError as error:
        msg = f"settings file {path} holds {quote(content)}, expected a mapping of settings"
        raise SettingsError(msg) from error


def _demand(text: str) -> Demand:
    parts = [part.partition(":") for part in text.split(",")]
    return Demand(tuple((int(size), float(weight or 1)) for size, _, weight in parts))
