"""What the operator sees of a canary: counts of the pods' `/metrics`, and what they amount to."""
