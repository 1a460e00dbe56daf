"""An InferenceModel is parsed with its defaults, or refused with the field and what it may hold."""

# ruff: noqa: E501 - messages are compared whole

from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.inference_model import (
    InferenceModelStatus,
    claim_and_path,
    parse_inference_model,
    parse_status,
)
from mcp2026.api.lifecycle import Phase

EXAMPLES = Path(__file__).parents[3] / "examples"

SAID = {
    "batch-archive-of-unknown-place": "spec.batch.archive: 'file:///logs/run.gz' is not allowed; allowed: pvc://<claim>/<path> or s3://<bucket>/<key>",
    "batch-input-of-unknown-suffix": "spec.batch.input: 'pvc://data/rows.csv' is not allowed; allowed: pvc://<claim>/<path>, s3://<bucket>/<key> or https://, ending in .npy",
    "batch-input-without-tls": "spec.batch.input: 'http://data.example/rows.npy' is not allowed; allowed: pvc://<claim>/<path>, s3://<bucket>/<key> or https://",
    "batch-max-failures-above-range": "spec.batch.maxFailures: 101 is out of range; allowed: an integer from 0 to 100, default 3",
    "batch-of-two-versions": "spec.versions: it means nothing to a run over a data set; allowed: with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize alone",
    "batch-output-climbs-out": "spec.batch.output: 'pvc://data/../results.npy' has . or .. as a segment",
    "batch-output-is-input": "spec.batch: input, output and archive are not three places; allowed: three different places",
    "batch-output-to-the-web": "spec.batch.output: 'https://data.example/results.npy' is not allowed; allowed: pvc://<claim>/<path> or s3://<bucket>/<key>, ending in",
    "batch-rows-per-part-below-range": "spec.batch.rowsPerPart: 0 is out of range; allowed: an integer from 1 to 10000000",
    "batch-secret-upper-case": "spec.batch.credentialsSecret: 'MySecret' is not allowed; allowed: the name of a Secret of the same namespace",
    "batch-timeout-below-range": "spec.batch.timeoutSeconds: 0 is out of range; allowed: an integer from 1 to 31536000",
    "batch-with-max-delay": "spec.batching: it means nothing to a run over a data set; allowed: with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize alone",
    "batch-with-mode-serve": "spec.batch: is given with mode Serve; allowed: with mode Batch, and with it alone",
    "batch-with-qos": "spec.qos: it means nothing to a run over a data set; allowed: with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize alone",
    "batch-with-replicas": "spec.replicas: it means nothing to a run over a data set; allowed: with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize alone",
    "batch-with-slo": "spec.slo: it means nothing to a run over a data set; allowed: with mode Batch: one version",
    "batch-without-data-set": "spec.batch: is not given; allowed: with mode Batch, and with it alone",
    "batch-size-above-range": "spec.batching.maxBatchSize: 129 is out of range; allowed: an integer from 4 to 128, default 32",
    "batch-size-below-range": "spec.batching.maxBatchSize: 3 is out of range; allowed: an integer from 4 to 128, default 32",
    "canary-error-rate-above-range": "spec.canary.rollback.errorRatePercent: 101 is out of range; allowed: a number from 0 to 100, default 1.0",
    "canary-latency-ratio-below-range": "spec.canary.rollback.latencyRatio: 0.5 is out of range; allowed: a number from 1 to 100, default 1.5",
    "canary-minimum-requests-below-range": "spec.canary.rollback.minimumRequests: 0 is out of range; allowed: an integer from 1 to 1000000, default 100",
    "canary-of-no-version": "spec.canary.version: there is no version 'v3'; allowed: one of v1, v2",
    "canary-of-only-version": "spec.canary: the model has no other version; allowed: two versions or more",
    "canary-step-above-range": "spec.canary.steps[1]: 101 is out of range; allowed: an integer from 1 to 100",
    "canary-step-seconds-above-range": "spec.canary.stepSeconds: 604801 is out of range; allowed: an integer from 1 to 604800, default 60",
    "canary-steps-shrink": "spec.canary.steps: [5, 50, 25] does not grow; allowed: growing percentages, 1 to 100",
    "canary-without-steps": "spec.canary.steps: 0 entries; allowed: a list with a number of entries from 1 to 16",
    "delay-above-range": "spec.batching.maxDelayMs: 65536 is out of range; allowed: an integer from 0 to 65535, default 0",
    "depends-on-itself": "spec.dependsOn: bad depends on itself",
    "depends-on-repeated": "spec.dependsOn: a name is repeated",
    "format-unknown": "spec.versions[0].format: 'SafeTensors' is not allowed; allowed: IR or ONNX, default ONNX",
    "gpu-count-above-range": "spec.gpu.count: 17 is out of range; allowed: an integer from 0 to 16, default 0",
    "gpu-in-limits": "spec.resources.limits: mcp2026.io/gpu is set here; allowed: GPUs by spec.gpu alone",
    "gpu-memory-of-two": "spec.gpu.memoryGiB: 10 is given; allowed: with sharing Shared and count 1 alone",
    "gpu-memory-of-whole-gpus": "spec.gpu.memoryGiB: 10 is given; allowed: with sharing Shared and count 1 alone",
    "gpu-mig-without-profile": "spec.gpu.migProfile: is not given; allowed: with sharing MIG, and with it alone",
    "gpu-profile-misspelled": "spec.gpu.migProfile: '3g-40gb' is not allowed; allowed: a profile such as 1g.10gb",
    "gpu-profile-without-mig": "spec.gpu.migProfile: 3g.40gb is given; allowed: with sharing MIG, and with it",
    "label-of-other-version": "spec.versions: v1 names more than one version, or one of them twice; allowed: labels that are neither",
    "label-repeated": "spec.versions: stable names more than one version, or one of them twice",
    "label-upper-case": "spec.versions[0].labels[0]: 'Stable' is not allowed; allowed: at most 63 lower-case letters",
    "min-batch-above-max-batch": "spec.batching.minBatchSize: 33 is above maxBatchSize 32",
    "mode-unknown": "spec.mode: 'Train' is not allowed; allowed: Batch or Serve",
    "name-starts-with-digit": "metadata.name: '1model' is not allowed",
    "name-too-long": "metadata.name: 'aaa",
    "no-versions": "spec.versions: 0 entries; allowed: a list with a number of entries from 1 to 16",
    "prefetch-depth-above-range": "spec.batching.prefetchQueueDepth: 33 is out of range; allowed: an integer from 2 to 32, default 8",
    "prefetch-depth-below-range": "spec.batching.prefetchQueueDepth: 1 is out of range; allowed: an integer from 2 to 32, default 8",
    "priority-default-above-levels": "spec.qos.priorities.default: 5 is above levels 3; allowed: 1 to levels (3); it is 5 where it is not set",
    "priority-levels-above-range": "spec.qos.priorities.levels: 101 is out of range; allowed: an integer from 1 to 100, default 10",
    "priority-queue-above-levels": """spec.qos.priorities.queues: '11' is no level; allowed: levels as keys, "1" to "10\"""",
    "priority-queue-misspelled": """spec.qos.priorities.queues: '01' is no level; allowed: levels as keys, "1" to "10\"""",
    "quantity-negative": "spec.resources.limits[...]: {'cpu': '-1'} is not allowed; allowed: a quantity such as 500m",
    "queue-timeout-above-range": "spec.qos.queue.maxTimeoutMs: 3600001 is out of range; allowed: an integer from 0 to 3600000, default 0",
    "queue-timeout-action-unknown": "spec.qos.queue.timeoutAction: 'Drop' is not allowed; allowed: Delay or Reject, default Reject",
    "sha256-upper-case": "allowed: the digest as 64 lower-case hex digits",
    "slo-latency-below-range": "spec.slo.latencyP95Ms: 0 is out of range; allowed: a number from 0.001 to 600000",
    "slo-latency-with-unit": "spec.slo.latencyP95Ms: '25ms' is not allowed; allowed: a number from 0.001 to 600000",
    "slo-without-latency": "spec.slo.latencyP95Ms: is required; allowed: a number from 0.001 to 600000",
    "tenant-id-with-space": "spec.qos.tenants[0].tenantId: 'acme inc' is not allowed; allowed: 1 to 63 visible ASCII characters without spaces",
    "tenant-repeated": "spec.qos.tenants: acme, acme repeats an id; allowed: each tenantId once",
    "tenant-weight-above-range": "spec.qos.tenants[0].weight: 1001 is out of range; allowed: an integer from 1 to 1000, default 1",
    "tenants-above-limit": "spec.qos.tenants: 65 entries; allowed: a list with a number of entries of at most 64",
    "uri-climbs-out": "spec.versions[0].uri: 'pvc://models/../a.onnx' has . or .. as a segment",
    "uri-other-scheme": "spec.versions[0].uri: 'gs://models/a.onnx' is not allowed; allowed: pvc://<claim>/<path>",
    "uri-without-path": "spec.versions[0].uri: 'pvc://models' is not allowed; allowed: pvc://<claim>/<path>",
    "uri-without-sha256": "spec.versions[0].sha256: is not given, and 's3://models/a.onnx' is fetched; allowed: the digest",
    "uri-without-tls": "spec.versions[0].uri: 'http://models.example.com/a.onnx' is not allowed",
    "version-id-upper-case": "spec.versions[0].versionId: 'V1' is not allowed; allowed: at most 63 lower-case letters",
    "version-repeated": "spec.versions: v1, v1 repeats an id; allowed: each versionId once",
    "weights-sum-to-110": "spec.versions: the weights sum to 110; allowed: weights that sum to 100",
}  # fmt: skip


def test_each_bad_example_has_its_message_here() -> None:
    assert sorted(SAID) == sorted(path.stem for path in (EXAMPLES / "bad").glob("*.yaml"))


@pytest.mark.parametrize("example", sorted(SAID))
def test_a_bad_example_is_refused_with_its_message(example: str) -> None:
    resource = yaml.safe_load((EXAMPLES / "bad" / f"{example}.yaml").read_text())
    with pytest.raises(InvalidResourceError) as refused:
        parse_inference_model(resource)
    assert SAID[example] in str(refused.value)


@pytest.mark.parametrize("example", ["resnet50", "magika", "shared", "canary", "fetched"])
def test_a_good_example_is_parsed(example: str) -> None:
    model = parse_inference_model(yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text()))
    assert model.name == example
    assert model.status == InferenceModelStatus()


def resource(**spec: Any) -> dict[str, Any]:
    version = {"versionId": "v1", "uri": "pvc://models/a.onnx"}
    return {"metadata": {"name": "m"}, "spec": {"versions": [version], **spec}}


def test_one_version_without_weight_gets_all_the_traffic() -> None:
    model = parse_inference_model(resource())
    assert model.versions_column == "v1=100"
    assert (model.spec.replicas, model.spec.gpu.count, model.namespace) == (1, 0, "default")


ODD: list[tuple[str, dict[str, Any], str]] = [
    (
        "a missing field",
        {"versions": [{"versionId": "v1"}]},
        "spec.versions[0].uri: is required; allowed: pvc://",
    ),
    (
        "an unknown field",
        {"surprise": 1},
        "spec.surprise: is not a field; allowed: allowIncompatible, batch, batching, canary, credentialsSecret",
    ),
    ("null for an object", {"batching": None}, "spec.batching: None is not allowed; allowed: an object"),
    ("a text for a flag", {"batching": {"tensorCache": "yes"}}, "allowed: true or false, default true"),
    ("a number for a list", {"versions": 3}, "spec.versions: 3 is not allowed"),
    ("a number for a name", {"dependsOn": ["a", 3]}, "spec.dependsOn[1]: 3 is not allowed"),
    (
        "a float for a whole number",
        {"qos": {"queue": {"maxTimeoutMs": 0.5}}},
        "spec.qos.queue.maxTimeoutMs: 0.5 is not allowed; allowed: an integer from 0 to 3600000, default 0",
    ),
    (
        "a limit of a level out of its range",
        {"qos": {"priorities": {"queues": {"1": {"maxRows": -1}, "2": {}}}}},
        "spec.qos.priorities.queues[...].maxRows: a value is not allowed; allowed: an integer from 0 to 1000000",
    ),
    (
        "a tenant without a name",
        {"qos": {"tenants": [{"tenantId": ""}]}},
        "spec.qos.tenants[0].tenantId: '' is not allowed; allowed: a string with a number of characters from 1 to 63",
    ),
    ("no spec at all", {"versions": None}, "spec.versions: None is not allowed"),
]


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_a_wrong_shape_is_refused_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        parse_inference_model(resource(**change))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (3, "metadata: 3 "),
        (["m"], "metadata: "),
        ({"name": 3}, "metadata.name: 3 is not allowed"),
        ({"name": None}, "metadata.name: None is not allowed"),
        ({"name": "m", "namespace": ["n"]}, "metadata.namespace: "),
        ({"name": "m", "generation": "two"}, "metadata.generation: 'two' is not allowed"),
    ],
)
def test_metadata_of_another_shape_is_refused_with_its_place(metadata: object, said: str) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        parse_inference_model({**resource(), "metadata": metadata})
    assert said in str(refused.value)


def test_a_status_is_read_whether_the_spec_is_good_or_not() -> None:
    broken = {"metadata": {"name": "m"}, "spec": {}, "status": {"phase": "Running"}}
    assert parse_status(broken).phase is Phase.RUNNING


def test_a_status_of_another_shape_is_refused() -> None:
    with pytest.raises(InvalidResourceError, match=r"status\.phase"):
        parse_status({"status": {"phase": "Dreaming"}})


@pytest.mark.parametrize(
    "uri",
    ["s3://models/a/b.onnx", "https://models.example.com:8443/a.onnx?X-Signature=a%2Fb", "https://host/a"],
)
def test_a_version_may_be_fetched_by_its_digest(uri: str) -> None:
    version = {"versionId": "v1", "uri": uri, "sha256": "0" * 64}
    resource: dict[str, Any] = {"metadata": {"name": "model"}, "spec": {"versions": [version]}}
    assert parse_inference_model(resource).spec.versions[0].uri == uri
    resource["spec"]["mode"] = "Batch"
    resource["spec"]["batch"] = {"input": "pvc://data/in.npy", "output": "pvc://data/out.npy"}
    with pytest.raises(InvalidResourceError, match="a version on a claim"):
        parse_inference_model(resource)


def test_one_secret_is_environment_of_the_servers() -> None:
    version = {"versionId": "v1", "uri": "pvc://models/a.onnx"}
    archive = {"folder": "s3://logs/model", "credentialsSecret": "logs"}
    spec = {"versions": [version], "credentialsSecret": "logs", "logArchive": archive}
    parse_inference_model({"metadata": {"name": "model"}, "spec": spec})
    spec["credentialsSecret"] = "models"
    with pytest.raises(InvalidResourceError, match="one Secret for both"):
        parse_inference_model({"metadata": {"name": "model"}, "spec": spec})


def test_a_uri_names_a_claim_and_a_path() -> None:
    claim, path = claim_and_path("pvc://models/a/b.onnx")
    assert (claim, str(path)) == ("models", "a/b.onnx")
