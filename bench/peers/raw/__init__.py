"""ONNX Runtime called in a loop, with no server."""
