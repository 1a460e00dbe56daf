"""Triton's model repositories, read as they are: folders, versions, and config.pbtxt."""
