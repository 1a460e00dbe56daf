"""From bytes to requests and back: one file per protocol, and the REST API that they carry."""
