"""How a GPU is shared between containers, and how it gets from one way to another. Decided purely."""
