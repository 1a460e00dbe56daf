"""The operator's edge: the API server and kopf."""
