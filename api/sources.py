"""Where a version's file may lie: on a claim, or where it has to be fetched from."""

from typing import Final

REMOTE_SCHEMES: Final = ("https://", "http://", "s3://")
CLAIM: Final = r"pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9._@+=-]+)+"
BUCKET: Final = r"s3://[a-z0-9][-a-z0-9.]{1,61}[a-z0-9](/[!-.0-9:->@-~]+)+"
URL: Final = r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[!-.0-9:->@-~/]+"
CLAIM_PATTERN: Final = rf"^{CLAIM}$"
MODEL_PATTERN: Final = rf"^({CLAIM}|{BUCKET}|{URL}([?][!-~]*)?)$"
MODEL_TEXT: Final = (
    "pvc://<claim>/<path>, the path of letters, digits and . _ @ + = - without . or .. as a segment; "
    "or s3://<bucket>/<key> or https://, with sha256"
)


def is_remote(place: str) -> bool:
    """Return whether a path or URI is one that has to be fetched."""
    return place.startswith(REMOTE_SCHEMES)
