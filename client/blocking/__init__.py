"""The client for programs that block: sockets, threads, grpcio."""
