"""The vocabulary that every component shares: resources, life cycle, names on the wire.

Imports nothing of ours and does no input or output.
"""
