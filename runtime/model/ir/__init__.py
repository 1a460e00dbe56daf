"""Our own model format, `.mcpir`: a manifest, a graph, and weights in whole pages that processes share.

The format is described in docs/model-formats.md, the choices in docs/decisions/0017.
"""
