"""The few rules of protobuf's wire that are needed to leave tensors where they are.

https://protobuf.dev/programming-guides/encoding/: a message is a list of fields, each with a key (number and
kind) as a varint before it. A field of bytes is a length and so many bytes.
"""

from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview

RAW_INPUTS = 7
"""Number of `raw_input_contents` in ModelInferRequest."""
RAW_OUTPUTS = 6
"""Number of `raw_output_contents` in ModelInferResponse."""

_BYTES = 2
_NAME_KEYS = (1 << 3 | _BYTES, 2 << 3 | _BYTES)
_ID_KEY = 3 << 3 | _BYTES
_RAW_INPUT_KEY = RAW_INPUTS << 3 | _BYTES
_MAX_LENGTH_BYTES = 5


def split_request(message: bytes) -> tuple[bytes, bytes, list[memoryview]] | None:
    """Return a ModelInferRequest without its id and its raw inputs, the id, and these as views of `message`.

    None if it is not written as all known clients do: fields of bytes alone, the raw inputs last. Then
    protobuf has to read it as a whole, and decides whether it is valid.
    """
    position, end = 0, len(message)
    head_end = end
    id_start = id_end = 0
    request_id = b""
    view = memoryview(message)
    tensors: list[memoryview] = []
    while position < end:
        key = message[position]
        start = position + 1
        if key & 0x87 != _BYTES:  # a number above 15, or not a field of bytes
            return None
        length = shift = 0
        for index in range(start, min(start + _MAX_LENGTH_BYTES, end)):
            byte = message[index]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                start = index + 1
                break
            shift += 7
        else:
            return None
        stop = start + length
        if stop > end:
            return None
        if key == _RAW_INPUT_KEY:
            if not tensors:
                head_end = position
            tensors.append(view[start:stop])
        elif tensors:
            return None
        elif key == _ID_KEY:
            if id_end:
                return None
            id_start, id_end, request_id = position, stop, message[start:stop]
        position = stop
    head = message[:head_end] if tensors else message
    if id_end:
        head = head[:id_start] + head[id_end:]
    return head, request_id, tensors


def place_of_id(message: bytes) -> tuple[int, int]:
    """Return where the id of a ModelInferRequest begins and ends if it comes after the names alone.

    The two are the same if there is no id in that place, or names and id are not as short as usual.

    Raises:
        IndexError: the message ends before.

    """
    position = 0
    for key in _NAME_KEYS:
        if message[position] == key:
            if message[position + 1] > 0x7F:
                return 0, 0
            position += 2 + message[position + 1]
    if message[position] != _ID_KEY or message[position + 1] > 0x7F:
        return position, position
    return position, position + 2 + message[position + 1]


def bytes_field(number: int, parts: Sequence[Buffer]) -> list[Buffer]:
    """Return the parts of a field that holds `parts` one after another. Numbers up to 15."""
    return [bytes_head(number, sum([len(part) for part in parts])), *parts]


def bytes_head(number: int, size: int) -> bytes:
    """Return what comes before the `size` bytes of a field of bytes. Numbers up to 15."""
    return bytes((number << 3 | _BYTES,)) + varint(size)


def varint(value: int) -> bytes:
    """Return `value`, which is not negative, as a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
