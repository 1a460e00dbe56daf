"""Thin shells, each against one outside thing: here the Kubernetes API server."""
