"""The messages of the Open Inference Protocol, as the client has them."""
