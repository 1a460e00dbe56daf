"""Clients that send many requests at a time on one connection and read every answer to its end."""

import socket
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpack import Decoder

from tests.contract.runtime.server_process import PATIENCE

Headers = tuple[tuple[bytes, bytes], ...]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
GRPC_HEADERS: Headers = ((b"content-type", b"application/grpc"), (b"te", b"trailers"))


class Answer(NamedTuple):
    """An answer; of gRPC `status` is the HTTP status and `headers` have the trailers too."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Http1Client:
    """Sends requests of HTTP/1.1 one behind the other; all answers must come on the same connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def post(self, requests: Sequence[tuple[bytes, Headers, bytes]]) -> Iterator[Answer]:
        """Send all `requests`, path, headers and body, and return the answers in their order."""
        lines = []
        for path, headers, body in requests:
            more = b"".join(b"%b: %b\r\n" % header for header in headers)
            lines.append(
                b"POST %b HTTP/1.1\r\nhost: a\r\n%bcontent-length: %d\r\n\r\n%b"
                % (path, more, len(body), body)
            )
        self._socket.sendall(b"".join(lines))
        for _ in requests:
            yield self._answer()

    def _answer(self) -> Answer:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            self._more()
        lines = self._rest[:end].split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        after = end + 4 + int(headers[b"content-length"])
        while len(self._rest) < after:
            self._more()
        body, self._rest = self._rest[end + 4 : after], self._rest[after:]
        return Answer(int(lines[0].split(b" ")[1]), headers, body)

    def _more(self) -> None:
        piece = self._socket.recv(1 << 18)
        assert piece, f"the server closed the connection after {self._rest!r}"
        self._rest += piece

    def close(self) -> None:
        self._socket.close()


class Http2Client:
    """Sends requests as streams of one connection; none may be reset, and the connection must stay."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        window = frame(SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(8, 0, 0, b"\x7f\0\0\0")
        self._socket.sendall(PREFACE + window)
        self._decoder = Decoder()
        self._rest = b""
        self._stream_id = -1

    def post(self, requests: Sequence[tuple[bytes, Headers, bytes]]) -> list[Answer]:
        """Send all `requests`, path, headers and body, at once, and return the answers in this order."""
        parts: list[bytes] = []
        first = self._stream_id + 2
        for path, headers, body in requests:
            self._stream_id += 2
            block = b"\x83\x86" + literal(b":path", path) + literal(b":authority", b"a")
            block += b"".join(literal(*header) for header in headers)
            parts.append(frame(HEADERS, 4, self._stream_id, block))
            pieces = [body[start : start + 16_384] for start in range(0, len(body), 16_384)] or [b""]
            parts += [frame(DATA, 0, self._stream_id, piece) for piece in pieces[:-1]]
            parts.append(frame(DATA, 1, self._stream_id, pieces[-1]))
        self._socket.sendall(b"".join(parts))
        heads: dict[int, dict[bytes, bytes]] = {}
        bodies: dict[int, bytes] = {}
        open_streams = set(range(first, self._stream_id + 1, 2))
        while open_streams:
            for kind, flags, stream_id, payload in self._frames():
                if kind == HEADERS:
                    fields = self._decoder.decode(payload, raw=True)
                    heads.setdefault(stream_id, {}).update(
                        (bytes(name), bytes(value)) for name, value in fields
                    )
                elif kind == DATA:
                    bodies[stream_id] = bodies.get(stream_id, b"") + payload
                elif kind == RST_STREAM:  # an answer that is whole may be followed by NO_ERROR
                    assert stream_id not in open_streams, (stream_id, payload)
                    assert payload == bytes(4), (stream_id, payload)
                else:
                    assert kind != GOAWAY, payload
                if kind in (DATA, HEADERS) and flags & 1:
                    open_streams.remove(stream_id)
        return [
            Answer(int(heads[one][b":status"]), heads[one], bodies.get(one, b""))
            for one in range(first, self._stream_id + 1, 2)
        ]

    def _frames(self) -> list[tuple[int, int, int, bytes]]:
        piece = self._socket.recv(1 << 18)
        assert piece, "the server closed the connection"
        found, self._rest = frames_in(self._rest + piece)
        return found

    def close(self) -> None:
        self._socket.close()


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


def frames_in(data: bytes) -> tuple[list[tuple[int, int, int, bytes]], bytes]:
    """Return the whole frames in `data` as type, flags, stream and payload, and what is left."""
    found = []
    position = 0
    while len(data) - position >= 9:
        end = position + 9 + int.from_bytes(data[position : position + 3], "big")
        if end > len(data):
            break
        stream_id = int.from_bytes(data[position + 5 : position + 9], "big")
        found.append((data[position + 3], data[position + 4], stream_id, data[position + 9 : end]))
        position = end
    return found, data[position:]


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field as HPACK has it without any table."""
    return b"\x10" + _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    if size < 127:
        return bytes((size,))
    size -= 127
    encoded = bytearray((127,))
    while size > 127:
        encoded.append(size & 127 | 128)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def grpc_messages(body: bytes) -> list[bytes]:
    """Return the messages in the body of a gRPC answer."""
    found = []
    while body:
        end = 5 + int.from_bytes(body[1:5], "big")
        assert body[0] == 0
        assert end <= len(body)
        found.append(body[5:end])
        body = body[end:]
    return found
