"""What a server can be asked, and what its answers mean, in the words of HTTP and of gRPC."""
