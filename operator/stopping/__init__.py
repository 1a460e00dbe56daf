"""Mode Serve, stopped: the servers are told, their ends are gathered, and then no pod is left.

See docs/decisions/0096.
"""
