"""Revisions of the serving configuration that come while the server runs. See docs/decisions/0090."""
