"""What can go wrong in a comparison, each with what to do about it."""


class BenchError(Exception):
    """The comparison cannot go on; the message says why and what helps."""


class NotSupportedError(BenchError):
    """A server does not speak the protocol of a cell. The cell says so; it counts as no error."""


class WrongAnswerError(BenchError):
    """A server answered, but not what ONNX Runtime answers."""
