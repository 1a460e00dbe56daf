"""Versions loaded by the product's own code from real files, with counters in memory of their own."""

import os
from pathlib import Path

from mcp2026.api.serving import Batching, ServingConfig, single_version
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, block_sizes
from mcp2026.runtime.metrics.shared_blocks import create_shared_memory
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from mcp2026.runtime.model.loading import load_model


def metrics_for(*configs: ServingConfig) -> RuntimeMetrics:
    """Return the counters of a server with one process that serves `configs`."""
    descriptor = create_shared_memory(block_sizes(1))
    metrics = RuntimeMetrics(descriptor, 1, 1)
    os.close(descriptor)
    metrics.claim("", (), 0)
    for config in configs:
        metrics.claim(config.model, tuple(version.version_id for version in config.versions), config.revision)
    return metrics


def loaded_model(
    config: ServingConfig, metrics: RuntimeMetrics | None = None, warm_up_seconds: float = 0.0
) -> ServedModel:
    """Load every version of `config` with one compute thread, by default cold."""
    counters = metrics or metrics_for(config)
    return load_model(config, 1, "cpu", counters.version, warm_up_seconds=warm_up_seconds)


def loaded_version(path: Path | str, batching: Batching | None = None) -> LoadedVersion:
    """Load a file as the only version of a model."""
    return loaded_model(single_version(str(path), batching or Batching())).versions["1"]
