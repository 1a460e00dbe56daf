"""Hands each container its GPUs and tells the cluster which GPUs a node has: a kubelet device plugin."""
