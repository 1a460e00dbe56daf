"""Names of objects of Kubernetes in fields of ours."""

from typing import Annotated

import msgspec

SecretName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        max_length=253,
        description="the name of a Secret of the same namespace",
    ),
]
