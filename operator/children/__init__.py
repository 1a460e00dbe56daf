"""The objects that one InferenceModel becomes, as manifests."""

from mcp2026.operator.children.access import role, role_binding, service_account
from mcp2026.operator.children.deployment import deployment
from mcp2026.operator.children.job import job
from mcp2026.operator.children.service import service
from mcp2026.operator.children.serving_config import (
    serving_config,
    serving_config_map,
    serving_digest,
    serving_revision,
)

__all__ = [
    "deployment",
    "job",
    "role",
    "role_binding",
    "service",
    "service_account",
    "serving_config",
    "serving_config_map",
    "serving_digest",
    "serving_revision",
]
