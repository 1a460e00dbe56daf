"""The section `shares:` of the configuration file: where shares of GPUs go."""

from typing import Literal

import msgspec


class SharePlacing(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where the shares of one container, and of several, go.

    `packing` Spread takes GPUs with few other containers, Pack those that are in use already. With
    `distinct_only` a container with several shares in turns gets them of as many GPUs, or is refused.
    """

    packing: Literal["Spread", "Pack"] = "Spread"
    distinct_only: bool = False


SPREAD = SharePlacing()
"""Where nothing else is said."""
