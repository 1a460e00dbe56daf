"""Errors that the command line shows as one sentence."""


class CommandError(Exception):
    """What was asked cannot be done; the text says why and what to do."""


class ServerDiedError(CommandError):
    """A server process ended by itself."""
