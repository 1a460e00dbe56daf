"""Placement over a cluster's life, and static GPUs against MIG, in simulation. No GPU is measured."""
