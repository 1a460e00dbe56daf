"""A repository of models that is followed while the server runs. See docs/decisions/0097."""
