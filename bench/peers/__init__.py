"""The servers that are compared, a folder each: how one is started, its program, its pinned versions."""
