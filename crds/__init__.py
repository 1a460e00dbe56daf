"""The CustomResourceDefinitions, as data: read them by `importlib.resources.files("mcp2026.crds")`."""
