"""Triton Inference Server with its Python backend."""
