"""Which characters of a decoded completion each sampled token holds, without encoding anything again.

Axis letters: T tokens of one path.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

REPLACEMENT = "\ufffd"
"""What a decoder writes for bytes that are no whole character."""


class PieceTable(dict[int, str]):
    """Text of single tokens within running text, decoded once an id; special tokens are the empty string.

    A SentencePiece tokenizer drops the space in front of the first token it decodes, so each id is decoded behind an
    anchor.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._decode: Callable[[list[int]], str] = _decoder(tokenizer)
        self._special = frozenset(tokenizer.all_special_ids)
        self._anchor, self._anchor_text = self._find_anchor(tokenizer)

    def _find_anchor(self, tokenizer: Any) -> tuple[list[int], str]:
        for token in ("a", "1", "x", "0"):
            ids = [i for i in tokenizer(token, add_special_tokens=False)["input_ids"] if i not in self._special]
            if ids and self._decode(ids) == token and self._decode(ids + ids).startswith(token):
                return ids, token
        return [], ""

    def chunk(self, token_ids: Sequence[int]) -> str:
        """Return the text of consecutive tokens within running text."""
        text = self._decode([*self._anchor, *token_ids])
        return text[len(self._anchor_text) :] if text.startswith(self._anchor_text) else self._decode(list(token_ids))

    def __missing__(self, token_id: int) -> str:
        piece = "" if token_id in self._special else self.chunk([token_id])
        self[token_id] = piece
        return piece


def _decoder(tokenizer: Any) -> Callable[[list[int]], str]:
    owner = weakref.ref(tokenizer)

    def decode(token_ids: list[int]) -> str:
        alive = owner()
        assert alive is not None, "the tokenizer of this table is gone"
        return alive.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    return decode


_TABLES: weakref.WeakKeyDictionary[Any, PieceTable] = weakref.WeakKeyDictionary()


def piece_table(tokenizer: Any) -> PieceTable:
    """Return the tokenizer's table of token texts, kept between calls."""
    table = _TABLES.get(tokenizer)
    if table is None:
        table = _TABLES[tokenizer] = PieceTable(tokenizer)
    return table


def decode_text(token_ids: Sequence[int], tokenizer: Any) -> str:
    """Return the completion as text, special tokens left out, spaces as they are."""
    return tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def token_char_spans(token_ids: Sequence[int], tokenizer: Any, text: str | None = None) -> list[tuple[int, int]]:
    """Return for each token the characters of `decode_text(token_ids)` it holds, as (start, end) with end exclusive.

    Exact for every tokenizer: texts of single tokens are laid side by side and compared with the decoded text;
    tokens that share a character (bytes of one letter) all get it; where that fails, prefixes are decoded. Special
    tokens have width 0.

    Args:
        token_ids: sampled ids, T.
        text: the decoded text, when the caller has it.
    """
    text = decode_text(token_ids, tokenizer) if text is None else text
    table = piece_table(tokenizer)
    pieces = [table[token] for token in token_ids]
    if REPLACEMENT in "".join(pieces):
        widths, overlaps = _byte_widths(token_ids, pieces, table)
        joined = sum(widths) == len(text) or sum(widths) == len(text) + 1
    else:
        widths, overlaps = list(map(len, pieces)), [0] * len(pieces)
        line = "".join(pieces)
        joined = line == text or line[1:] == text
    if not joined:
        return _prefix_spans(token_ids, tokenizer, text)
    spans, end = [], len(text) - sum(widths)  # -1 when the decoder drops the first space
    for width, overlap in zip(widths, overlaps, strict=True):
        start, end = end, end + width
        spans.append((max(start, 0), min(max(end + overlap, 0), len(text))))
    return spans


def _byte_widths(token_ids: Sequence[int], pieces: list[str], table: PieceTable) -> tuple[list[int], list[int]]:
    """Return each token's number of completed characters, and 1 where it also holds part of the next one.

    Only runs of tokens whose own text is broken are decoded again.
    """
    widths, overlaps, k = list(map(len, pieces)), [0] * len(pieces), 0
    while k < len(pieces):
        stop = k
        while stop < len(pieces) and REPLACEMENT in pieces[stop]:
            stop += 1
        if stop == k:
            k += 1
            continue
        whole, before = table.chunk(token_ids[k:stop]), 0
        for i in range(k, stop):
            after = max(before, _agreement(table.chunk(token_ids[k : i + 1]), whole)) if i + 1 < stop else len(whole)
            widths[i], overlaps[i] = after - before, int(after < len(whole) and i + 1 < stop)
            before = after
        k = stop
    return widths, overlaps


def _agreement(prefix_text: str, text: str) -> int:
    """Return how many leading characters of `text` the decoded prefix has settled: broken letters at its end do not
    count.
    """
    settled = len(prefix_text)
    while settled and (prefix_text[settled - 1] == REPLACEMENT or not text.startswith(prefix_text[:settled])):
        settled -= 1
    return settled


def _prefix_spans(token_ids: Sequence[int], tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """`token_char_spans` by decoding every prefix: slow, and right for any decoder whose prefixes agree."""
    special = set(tokenizer.all_special_ids)
    spans: list[tuple[int, int]] = []
    before = 0
    for k, token in enumerate(token_ids):
        last = k + 1 == len(token_ids)
        after = len(text) if last else max(before, _agreement(decode_text(token_ids[: k + 1], tokenizer), text))
        shares = after == before and token not in special
        spans.append((before, min(after + shares, len(text))))
        before = after
    return spans
