"""ModelStreamInfer: many requests and their answers on one call."""

from collections import deque
from collections.abc import Callable

from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.protocol.context_headers import Fields
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.service import Outbound
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer
from mcp2026.runtime.protocol.open_inference.errors import text_of
from mcp2026.runtime.protocol.open_inference.grpc_codec import Inference, KnownMessages
from mcp2026.runtime.protocol.open_inference.wire import bytes_field

_INFER_RESPONSE = 2
"""Number of `infer_response` in ModelStreamInferResponse."""

_Parts = list[Buffer]
_Send = Callable[[], None]


class InferStream:
    """One ModelStreamInfer call: answers leave in the order of the requests, errors among them."""

    def __init__(
        self,
        submit: Callable[..., Cancel | None],
        known: KnownMessages,
        refuse: Callable[[RequestError], object],
        trailers: Fields,
        outbound: Outbound,
    ) -> None:
        """Submit what is read by `submit`; `refuse` is told of what cannot be. `trailers` end the call."""
        self._submit = submit
        self._known = known
        self._refuse = refuse
        self._trailers = trailers
        self._outbound = outbound
        self._owed: deque[_Owed] = deque()
        self._half_closed = False
        self._over = False

    def message(self, message: bytes) -> None:
        """Take in one request."""
        owed = _Owed()
        self._owed.append(owed)
        try:
            inference = Inference(message, self._known)
        except RequestError as error:
            self._refuse(error)
            self._settle(owed, _stream_error(error, ""))
            return
        request_id = inference.id

        def answer(parts: _Parts) -> _Send:
            content = b"".join(bytes_field(_INFER_RESPONSE, parts))
            return lambda: self._settle(owed, content)

        owed.cancel = self._submit(
            inference, answer, lambda error: self._settle(owed, _stream_error(error, request_id))
        )

    def half_closed(self) -> None:
        """End the call when everything is answered."""
        self._half_closed = True
        self._flush()

    def cancelled(self) -> None:
        """Cancel what waits."""
        self._over = True
        for owed in self._owed:
            if owed.answer is None and owed.cancel is not None:
                owed.cancel()
        self._owed.clear()

    def _settle(self, owed: "_Owed", answer: bytes) -> None:
        owed.answer = answer
        self._flush()

    def _flush(self) -> None:
        if self._over:
            return
        while self._owed and (answer := self._owed[0].answer) is not None:
            self._owed.popleft()
            self._outbound.send(answer)
        if self._half_closed and not self._owed:
            self._over = True
            self._outbound.finish(trailers=self._trailers)


class _Owed:
    """The answer to one request of a stream, once there is one."""

    __slots__ = ("answer", "cancel")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.cancel: Cancel | None = None


def _stream_error(error: RequestError, request_id: str) -> bytes:
    message = messages.ModelStreamInferResponse(error_message=text_of(error))
    message.infer_response.id = request_id
    return message.SerializeToString()
