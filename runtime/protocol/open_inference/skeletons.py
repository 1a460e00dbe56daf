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
Cut = tuple[Key, str, Sequence[bytes]]
"""Such a text, the id, and the lists with their brackets; these may hold anything."""


def cut(text: bytes) -> Cut:
    """Take the id and the lists out of `text`."""
    request_id = ""
    if text.startswith(_ID_START):
        found = _ID.match(text)
        if found is not None:
            request_id = found[1].decode()
            text = b"{" + text[found.end() :]
    place = text.find(_DATA)
    if place < 0:
        return text, request_id, ()
    start = text.find(b"[", place + len(_DATA)) + 1
    end = text.find(b"]", start)
    if not 0 < start <= end:
        return text, request_id, ()
    next_place = text.find(_DATA, end)
    if next_place < 0:
        return (text[:start], text[end:]), request_id, (text[start - 1 : end + 1],)
    return _cut_more(text, request_id, place)


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


def _cut_more(text: bytes, request_id: str, place: int) -> Cut:
    pieces: list[bytes] = []
    lists: list[bytes] = []
    position = 0
    while place >= 0:
        start = text.find(b"[", place + len(_DATA)) + 1
        end = text.find(b"]", start)
        if len(lists) == _MOST_LISTS or not 0 < start <= end:
            return text, request_id, ()
        pieces.append(text[position:start])
        lists.append(text[start - 1 : end + 1])
        position = end
        place = text.find(_DATA, end)
    return (*pieces, text[position:]), request_id, lists
