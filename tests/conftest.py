"""Fixtures that more than one folder of tests uses."""

pytest_plugins = ["tools.cluster.fixtures"]
