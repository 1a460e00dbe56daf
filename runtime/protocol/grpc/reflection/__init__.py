"""Server reflection: clients such as grpcurl learn services and messages from the server itself."""
