"""The JSON of a request without what differs from one to the next: its id, and the flat lists of data.

A list is cut out where the text has `"data"`, and the id if it is the first member, in plain characters. Both
are found by their looks. `marked` gives the same text with marks in the places of what was cut out: whoever
finds every mark as the value of the member that it should be knows that the looks did not deceive, for this
text and for every other one with the same rest, since in JSON any value may stand where a value stands.
"""

import re
from collections.abc import Sequence

_ID = re.compile(rb'\{"id"[ \t\r\n]*:[ \t\r\n]*"([ !#-\[\]-~]{0,128})"[ \t\r\n]*,')
_ID_START = b'{"id"'
_DATA = b'"data"'
_MOST_LISTS = 16

MARK_OF_ID = "the id stands here"

Key = bytes | tuple[bytes, ...]
"""A text without its id; or its pieces: each list was between two of them, its brackets belong to these."""
Cut = tuple[Key, Sequence[bytes]]
"""Such a text, and the lists with their brackets; these may hold anything."""


def without_id(text: bytes) -> tuple[bytes, str]:
    """Return `text` without its id, and the id."""
    found = _ID.match(text) if text.startswith(_ID_START) else None
    if found is None:
        return text, ""
    return b"{" + text[found.end() :], found[1].decode()


def without_lists(text: bytes) -> Cut:
    """Return `text` as a key, and the lists that were cut out of it."""
    place = text.find(_DATA)
    if place < 0:
        return text, ()
    start = text.find(b"[", place + len(_DATA)) + 1
    end = text.find(b"]", start)
    if not 0 < start <= end:
        return text, ()
    if text.find(_DATA, end) < 0:
        return (text[:start], text[end:]), (text[start - 1 : end + 1],)
    return _without_many(text, place)


def marked(key: Key) -> bytes:
    """Return the text with `MARK_OF_ID` as its id and with the number of each list in its place, from 0."""
    if isinstance(key, bytes):
        text = key
    else:
        parts = [key[0][:-1]]
        for number, piece in enumerate(key[1:-1]):
            parts += (b"%d" % number, piece[1:-1])
        parts += (b"%d" % (len(key) - 2), key[-1][1:])
        text = b"".join(parts)
    return b'{"id":"%b",%b' % (MARK_OF_ID.encode(), text[1:])


def _without_many(text: bytes, place: int) -> Cut:
    pieces: list[bytes] = []
    lists: list[bytes] = []
    position = 0
    while place >= 0:
        start = text.find(b"[", place + len(_DATA)) + 1
        end = text.find(b"]", start)
        if len(lists) == _MOST_LISTS or not 0 < start <= end:
            return text, ()
        pieces.append(text[position:start])
        lists.append(text[start - 1 : end + 1])
        position = end
        place = text.find(_DATA, end)
    return (*pieces, text[position:]), lists
