"""The native API: all of it over gRPC, and over HTTP all but inference, with the document that says so."""
