"""The configuration file: what it sets, what it refuses by name, and how a change is taken."""

import asyncio
from pathlib import Path

import pytest

from mcp2026.api.configuration_file import ConfigurationFile
from mcp2026.api.errors import ConfigurationError
from mcp2026.scheduler_extender.configuration import parse_configuration
from mcp2026.scheduler_extender.policy import DEFAULT_POLICY, Policy
from mcp2026.topology.demand import DemandMix

EVERYTHING = """
packing: Pack
demandMix: {1: 50, "2": 50}
guaranteedApart: false
gangDeadlineSeconds: 90
nodesToScore: 100
latency:
  - {model: resnet50, product: NVIDIA L40S, p95Ms: 7.5}
  - {model: resnet50, mig: 1g.10gb, neighbours: 2, p95Ms: 21}
"""


def test_everything_that_can_be_set() -> None:
    policy = parse_configuration(EVERYTHING, "c.yaml")
    assert (policy.packing, policy.guaranteed_apart, policy.gang_deadline_s) == ("Pack", False, 90)
    assert policy.nodes_to_score == 100
    assert policy.mix == DemandMix.of({1: 50, 2: 50})
    assert policy.latency.predicted_us("resnet50", "NVIDIA L40S", "", 3) == 7_500
    assert policy.latency.predicted_us("resnet50", "any", "1g.10gb", 2) == 21_000


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "packing: null"])
def test_what_is_not_said_is_as_by_default(text: str) -> None:
    policy = parse_configuration(text, "c.yaml")
    assert (policy.packing, policy.mix, policy.guaranteed_apart, policy.gang_deadline_s) == (
        DEFAULT_POLICY.packing,
        DEFAULT_POLICY.mix,
        DEFAULT_POLICY.guaranteed_apart,
        DEFAULT_POLICY.gang_deadline_s,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("packing: Full", "configuration.packing: 'Full' is not allowed; allowed: Pack or Spread"),
        (
            "pack: Spread",
            "allowed: demandMix, gangDeadlineSeconds, guaranteedApart, latency, nodesToScore, packing",
        ),
        ("demandMix: {1: 40, 2: 50}", "configuration.demandMix: the shares sum to 90; allowed: 100"),
        ("demandMix: {0: 100}", "allowed: as keys a number of GPUs from 1 to 99"),
        (
            "nodesToScore: 3",
            "configuration.nodesToScore: 3 is out of range; allowed: an integer from 10 to 100000",
        ),
        ("latency: [{model: a, p95Ms: 3}]", "configuration.latency[0]: says of no GPU"),
        ("latency: [{model: a, mig: x}]", "configuration.latency[0].p95Ms: is required"),
        ("latency: [{model: a, p95Ms: 0, mig: x}]", "configuration.latency[0].p95Ms: 0 is out of range"),
        (
            "latency: [{model: a, p95Ms: 3, mig: x}, {model: a, p95Ms: 4, mig: x}]",
            "configuration.latency[1]: says the same as latency[0]",
        ),
        (
            "gangDeadlineSeconds: 0",
            "configuration.gangDeadlineSeconds: 0 is out of range; allowed: a number from 1 to 3600",
        ),
        ("[]", "configuration: 0 entries; allowed: an object"),
        ("a: [", "not YAML"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text, "c.yaml")
    assert str(caught.value).startswith("c.yaml: ")
    assert complaint in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"c\.yaml: cannot be read"):
        ConfigurationFile(tmp_path / "c.yaml", parse_configuration).read()


async def test_a_change_is_taken_and_a_bad_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("packing: Pack")
    file = ConfigurationFile(path, parse_configuration)
    assert file.read().packing == "Pack"
    taken: asyncio.Queue[Policy] = asyncio.Queue()
    refused: asyncio.Queue[str] = asyncio.Queue()
    following = asyncio.create_task(file.follow(taken.put_nowait, refused.put_nowait, 0.005))
    try:
        async with asyncio.timeout(10):
            _replace(path, "packing: Everywhere")
            assert "'Everywhere' is not allowed" in await refused.get()
            assert taken.empty()
            _replace(path, "packing: Spread")
            assert (await taken.get()).packing == "Spread"
    finally:
        following.cancel()


def _replace(path: Path, text: str) -> None:
    """Change the file as the kubelet does: all at once."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
