"""What one batching runtime process is made of; `__main__` wires it together."""
