"""Running batches: buffers, gathering and the threads that call ONNX Runtime."""
