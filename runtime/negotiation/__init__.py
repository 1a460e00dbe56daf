"""Batching as it was negotiated: for a request, for a connection, and for whoever asks what holds."""
