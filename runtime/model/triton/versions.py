"""Which of the versions in a model's folder are served."""

from collections.abc import Sequence

from mcp2026.runtime.model.triton.model_config_pb2 import ModelConfig
from mcp2026.runtime.model.triton.refusal import Refusal

MAX_VERSIONS = 16


def choose_versions(config: ModelConfig, found: Sequence[int]) -> tuple[int, ...] | Refusal:
    """Return the versions that the policy asks for, growing; without a policy the latest alone."""
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    there = sorted(found)
    if choice == "all":
        chosen = there
    elif choice == "specific":
        chosen = sorted(set(policy.specific.versions))
        missing = [version for version in chosen if version not in there]
        if missing or not chosen:
            problem = f"asks for {missing}, which are not there" if missing else "names no version"
            return Refusal("version_policy.specific.versions", problem, ", ".join(map(str, there)))
    else:
        chosen = there[-(policy.latest.num_versions or 1) :]
    if len(chosen) > MAX_VERSIONS:
        return Refusal("version_policy", f"asks for {len(chosen)} versions", f"1 to {MAX_VERSIONS}")
    return tuple(chosen)
