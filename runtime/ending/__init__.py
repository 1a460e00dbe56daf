"""What a server does when its model is stopped: it drains, archives its log, reports, and does not come back.

See docs/decisions/0096.
"""
