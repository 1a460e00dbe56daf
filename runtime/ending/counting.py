"""How many requests a server has answered, from the text of its metrics."""

_REQUESTS = b"mcp2026_requests_total{"


def answered(page: bytes) -> int:
    """Return the answers of all models, whatever their status.

    `page` is in Prometheus' text format: a name, labels, and a value at the end of the line.
    """
    lines = (line for line in page.splitlines() if line.startswith(_REQUESTS))
    return sum(int(float(line.rsplit(b" ", 1)[1])) for line in lines)
