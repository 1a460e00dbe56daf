"""The extender's configuration file: what of the policy a cluster's owner has set (0115). Pure."""

from typing import Annotated, Any

import msgspec
import yaml

from mcp2026.api.errors import ConfigurationError, InvalidResourceError
from mcp2026.api.schema_errors import explain
from mcp2026.api.yaml_errors import NOT_YAML
from mcp2026.scheduler_extender.policy import (
    GANG_DEADLINE_S,
    LatencyModel,
    MeasuredLatency,
    Packing,
    Policy,
)
from mcp2026.topology.demand import DEFAULT_MIX, DemandMix
from mcp2026.topology.errors import DemandMixError

Size = Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]?$", description="a number of GPUs from 1 to 99")]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class LatencyRow(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A measured latency of a model, on a product or MIG profile (one of them at least), with neighbours."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    p95_ms: Annotated[float, msgspec.Meta(ge=0.001, le=600_000)]
    product: Annotated[str, msgspec.Meta(max_length=128)] = ""
    mig: Annotated[str, msgspec.Meta(max_length=32)] = ""
    neighbours: Annotated[int, msgspec.Meta(ge=0, le=256)] = 0


class Configuration(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The file. `demand_mix` says in how many of 100 cases a later request is of so many GPUs."""

    packing: Packing | None = None
    demand_mix: dict[Size, Percent] | None = None
    guaranteed_apart: bool = True
    gang_deadline_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = GANG_DEADLINE_S
    nodes_to_score: Annotated[int, msgspec.Meta(ge=10, le=100_000)] | None = None
    latency: Annotated[tuple[LatencyRow, ...], msgspec.Meta(max_length=10_000)] = ()


def parse_configuration(text: str, source: str) -> Policy:
    """Return the policy that the YAML file `source` sets; an empty one leaves all as it is by default.

    Raises:
        ConfigurationError: it is not YAML, has a field that does not exist, or a value that cannot be.

    """
    try:
        document: Any = yaml.safe_load(text)
    except NOT_YAML as error:
        raise ConfigurationError(source, f"not YAML: {error}") from error
    try:
        return _policy(_converted({} if document is None else document))
    except InvalidResourceError as error:
        raise ConfigurationError(source, str(error)) from error


def _converted(document: Any) -> Configuration:
    if isinstance(document, dict) and isinstance(mix := document.get("demandMix"), dict):
        # YAML reads a size as a number, and Helm writes it as a string.
        document = {**document, "demandMix": {str(size): share for size, share in mix.items()}}
    try:
        return msgspec.convert(document, Configuration)
    except msgspec.ValidationError as error:
        raise explain(error, document, Configuration, "configuration") from error


def _policy(configuration: Configuration) -> Policy:
    return Policy(
        packing=configuration.packing,
        mix=_mix(configuration.demand_mix),
        guaranteed_apart=configuration.guaranteed_apart,
        latency=LatencyModel(_measured(configuration.latency)),
        gang_deadline_s=configuration.gang_deadline_seconds,
        nodes_to_score=configuration.nodes_to_score,
    )


def _mix(percent: dict[Size, Percent] | None) -> DemandMix:
    if percent is None:
        return DEFAULT_MIX
    try:
        return DemandMix.of({int(size): share for size, share in percent.items()})
    except DemandMixError as error:
        problem, _, allowed = str(error).removeprefix("demand mix: ").partition("; allowed: ")
        raise InvalidResourceError("configuration.demandMix", problem, allowed) from error


def _measured(rows: tuple[LatencyRow, ...]) -> list[MeasuredLatency]:
    seen: dict[tuple[str, str, str, int], int] = {}
    measured = []
    for place, row in enumerate(rows):
        field = f"configuration.latency[{place}]"
        if not row.product and not row.mig:
            raise InvalidResourceError(field, "says of no GPU", "product, mig, or both")
        key = (row.model, row.product, row.mig, row.neighbours)
        if key in seen:
            raise InvalidResourceError(
                field,
                f"says the same as latency[{seen[key]}]",
                "each model, product, mig and neighbours once",
            )
        seen[key] = place
        measured.append(MeasuredLatency(*key, p95_us=max(1, round(row.p95_ms * 1000))))
    return measured
