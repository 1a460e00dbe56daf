"""Decoding of Huffman-coded strings in header blocks (https://www.rfc-editor.org/rfc/rfc7541#appendix-B).

The code is canonical: it follows from the lengths of its 257 words. The decoder goes through a string by half
bytes: a row of the table is a node of the tree, a column the next four bits.
"""

# fmt: off
_LENGTHS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6,
    6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6,
    7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23,
    22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26,
    20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26,
    26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26,
    27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
)
# fmt: on
"""Bits of each symbol's word; number 256 is the end of a string, which never occurs inside one."""

_END = 256
_LONGEST_PADDING = 7

_Step = tuple[int, int, bool]
"""Next node or -1, symbol that was completed or -1, whether the string may end here."""


def _words() -> dict[int, tuple[int, int]]:
    """Return (length, word) of each symbol."""
    words: dict[int, tuple[int, int]] = {}
    word = 0
    for length in range(1, max(_LENGTHS) + 1):
        word <<= 1
        for symbol, its_length in enumerate(_LENGTHS):
            if its_length == length:
                words[symbol] = (length, word)
                word += 1
    return words


def _build() -> list[list[_Step]]:
    children: list[list[int]] = [[0, 0]]  # a child above 0 is a node, below 0 a symbol: -1 - symbol
    endings = {0}  # nodes reached by at most 7 ones, the start of the end's word
    for symbol, (length, word) in _words().items():
        node = 0
        for place in range(length - 1, -1, -1):
            bit = word >> place & 1
            if place == 0:
                children[node][bit] = -1 - symbol
            else:
                if children[node][bit] == 0:
                    children.append([0, 0])
                    children[node][bit] = len(children) - 1
                node = children[node][bit]
    node = 0
    for _ in range(_LONGEST_PADDING):
        node = children[node][1]
        endings.add(node)

    def step(node: int, bits: int) -> _Step:
        completed = -1
        for place in (3, 2, 1, 0):
            node = children[node][bits >> place & 1]
            if node < 0:
                completed, node = -1 - node, 0
                if completed == _END:
                    return -1, -1, False
        return node, completed, node in endings

    return [[step(node, bits) for bits in range(16)] for node in range(len(children))]


_TABLE = _build()


def decode(coded: bytes) -> bytes:
    """Return the string. Raises ValueError if it holds the end's word or does not end with its start."""
    symbols = bytearray()
    node, may_end = 0, True
    table = _TABLE
    for byte in coded:
        node, symbol, _ = table[node][byte >> 4]
        if symbol >= 0:
            symbols.append(symbol)
        if node < 0:
            break
        node, symbol, may_end = table[node][byte & 15]
        if symbol >= 0:
            symbols.append(symbol)
        if node < 0:
            break
    if node < 0 or not may_end:
        raise ValueError("not a Huffman-coded string")
    return bytes(symbols)
