"""Where a version's file may lie that is on no file system of the pod."""

from typing import Final

REMOTE_SCHEMES: Final = ("https://", "http://", "s3://")


def is_remote(place: str) -> bool:
    """Return whether a path or URI is one that has to be fetched."""
    return place.startswith(REMOTE_SCHEMES)
