"""What a peer can do wrong in HTTP/2, each with the error code of RFC 9113 §7."""

from enum import IntEnum


class Http2Code(IntEnum):
    """Error codes (https://www.rfc-editor.org/rfc/rfc9113#section-7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionProtocolError(Exception):
    """The peer broke the protocol in a way that ends the connection."""

    def __init__(self, code: Http2Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StreamProtocolError(Exception):
    """The peer broke the protocol in a way that ends one stream."""

    def __init__(self, stream_id: int, code: Http2Code, message: str) -> None:
        super().__init__(message)
        self.stream_id = stream_id
        self.code = code
        self.message = message


class MalformedRequestError(Exception):
    """The fields of a request are not those of a request."""


class HeadersTooLargeError(Exception):
    """The fields of a request exceed what the server takes."""
