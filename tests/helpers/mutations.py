"""Damaged copies of files: bytes changed, cut, repeated or moved, numbers replaced by ones that nobody expects."""

import random
import re
import struct
from collections.abc import Callable

NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")
WORD = re.compile(rb"[A-Za-z_]+|\"[^\"]*\"|[\[\]{}(),:;|]")
NUMBERS = (b"-1", b"0", b"1", b"2", b"255", b"1e400", b"NaN", b"-Infinity", b"99999999999", b"1e308", b"0.5", b"9" * 40)
WORDS = (b"", b"null", b"true", b"[]", b"{}", b'""', b'"a"', b"[[[]]]", b"[", b"}", b",", b"\x00", b"\xff", b"MARKOV")
SIZES = (0, 1, 2, 255, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A copy with one to four changes; of text, mostly of its numbers and words."""
    changes = TO_TEXT if content.isascii() and b"\0" not in content and draw.random() < 0.7 else CHANGES
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(changes)(content, draw)
    return content


def _at(content: bytes, draw: random.Random) -> int:
    """A place, more often near the start, where headers are."""
    end = draw.choice((16, 64, 256, len(content)))
    return draw.randrange(max(1, min(end, len(content))))


def _flip(content: bytes, draw: random.Random) -> bytes:
    at = _at(content, draw)
    return content[:at] + bytes(b ^ 1 << draw.randrange(8) for b in content[at : at + 1]) + content[at + 1 :]


def _put(content: bytes, draw: random.Random) -> bytes:
    at, new = _at(content, draw), draw.choice((b"\0", b"\xff", b"\x7f\x7f", b"\x80", b"\n", b"\xef\xbb\xbf"))
    return content[:at] + new + content[at + draw.choice((0, len(new))) :]


def _size(content: bytes, draw: random.Random) -> bytes:
    at, form = _at(content, draw), draw.choice(("<I", ">I", "<Q", ">Q", "<H", ">H"))
    new = struct.pack(form, draw.choice(SIZES) % 2 ** (8 * struct.calcsize(form)))
    return content[:at] + new + content[at + len(new) :]


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _without(content: bytes, draw: random.Random) -> bytes:
    at = _at(content, draw)
    return content[:at] + content[at + draw.choice((1, 2, 8, 100)) :]


def _twice(content: bytes, draw: random.Random) -> bytes:
    at, length = _at(content, draw), draw.choice((1, 4, 30, 300))
    return content[: at + length] + content[at : at + length] * draw.choice((1, 2, 50)) + content[at + length :]


def _swapped(content: bytes, draw: random.Random) -> bytes:
    a, b, length = _at(content, draw), _at(content, draw), draw.choice((1, 4, 20))
    first, second = content[a : a + length], content[b : b + length]
    changed = content[:a] + second + content[a + length :]
    return changed[:b] + first + changed[b + length :]


def _replaced(pattern: re.Pattern[bytes], others: tuple[bytes, ...]) -> Callable[[bytes, random.Random], bytes]:
    def change(content: bytes, draw: random.Random) -> bytes:
        places = list(pattern.finditer(content[:100_000]))
        if not places:
            return content
        place = draw.choice(places)
        return content[: place.start()] + draw.choice(others) + content[place.end() :]

    return change


_number, _word = _replaced(NUMBER, NUMBERS), _replaced(WORD, WORDS)
TO_TEXT = (_number, _number, _number, _word, _twice, _swapped)
CHANGES = (_flip, _put, _size, _cut, _without, _twice, _swapped, _number, _word)
