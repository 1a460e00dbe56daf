"""HTTP/2 (RFC 9113) for servers: a state machine without input and output, and its asyncio protocol."""
