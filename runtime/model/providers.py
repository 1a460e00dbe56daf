"""Which of ONNX Runtime's execution providers a session gets."""

from collections.abc import Sequence

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.settings import ProviderChoice

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"

_BEST_FIRST = {"tensorrt": TENSORRT, "cuda": CUDA, "cpu": CPU}


def choose_providers(choice: ProviderChoice, available: Sequence[str]) -> list[str]:
    """Return the providers in order of preference; the later ones take what the first cannot run.

    Raises:
        SettingsError: `choice` names a provider that is not available here.

    """
    order = [_BEST_FIRST[name] for name in _BEST_FIRST if _BEST_FIRST[name] in available]
    if choice == "auto":
        return order
    if _BEST_FIRST[choice] not in available:
        names = [name for name, provider in _BEST_FIRST.items() if provider in available]
        raise SettingsError(
            "--provider",
            f"{choice} is not offered by the installed ONNX Runtime",
            ", ".join(["auto", *names]),
        )
    return order[order.index(_BEST_FIRST[choice]) :]
