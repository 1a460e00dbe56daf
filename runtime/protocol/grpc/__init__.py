"""gRPC over our own HTTP/2: message framing, status, deadlines, and the services that are served."""
