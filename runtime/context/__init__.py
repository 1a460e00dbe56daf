"""The scheduling context in the server: read from headers, checked, and told in logs, spans and metrics."""
