"""The labels by which requests may ask for versions."""

from mcp2026.api.inference_model import InferenceModelSpec

CANARY = "canary"
STABLE = "stable"


def version_labels(spec: InferenceModelSpec) -> dict[str, tuple[str, ...]]:
    """Return the labels of each version, by its id.

    While there is a canary, and the spec gives no labels, its version is `canary`, and the other `stable` if
    there is only one. A version whose id is one of these words keeps it for itself. The labels stay where
    they are however the canary ends: a name that moved by itself would surprise its callers.
    """
    given = {version.version_id: version.labels for version in spec.versions}
    if spec.canary is None or any(given.values()):
        return given
    others = [version_id for version_id in given if version_id != spec.canary.version]
    wanted = {spec.canary.version: CANARY}
    if len(others) == 1:
        wanted[others[0]] = STABLE
    return {
        version_id: (wanted[version_id],) if version_id in wanted and wanted[version_id] not in given else ()
        for version_id in given
    }
