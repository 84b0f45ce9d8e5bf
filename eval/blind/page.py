"""The page that a person rates on, and the key that says whose answers it shows.

The page holds problems and answers in an order drawn from the operating system's entropy, first and second place drawn
for each problem, each model first equally often. Nothing else of the sources goes into it: its file says no more about
who is who than the answers themselves do.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field

from eval.blind.answers import Pair, Pairs, Source
from eval.blind.maths import Piece, pieces
from eval.schema import Count, Strict
from eval.shown_text import plain_text

MAX_ANSWER = 20_000
"""Characters of an answer, or of a problem, that are shown."""
TEMPLATES = Path(__file__).parent.parent / "templates"


class KeyItem(Strict):
    """One problem of a page: its text, and whose answer stands first."""

    problem: str
    first: Literal["a", "b"]


class Key(Strict):
    """Who is who on a page; kept from those who rate.

    Attributes:
        page: content hash of the page. a, b: the sources as they were given.
        seed: the draw of order and places.
        items: in the page's order.
        identical: problems to which both gave the same text; they are not on the page.
        not_drawn: problems with different answers beyond the number that was asked for.
    """

    format: Literal["blind-key/1"] = "blind-key/1"
    page: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    a: str
    b: str
    seed: int
    items: list[KeyItem]
    identical: Count
    not_drawn: Count


def draw(pairs: Sequence[Pair], number: int | None, seed: int) -> list[tuple[Pair, Literal["a", "b"]]]:
    """At most ``number`` pairs in random order, each with the side that stands first; both do so equally often."""
    rng = random.Random(seed)
    chosen = rng.sample(list(pairs), len(pairs) if number is None else min(number, len(pairs)))
    sides: list[Literal["a", "b"]] = ["a", "b"]
    rng.shuffle(sides)  # of an odd number, either may be first once more
    first = [sides[index % 2] for index in range(len(chosen))]
    rng.shuffle(first)
    return list(zip(chosen, first, strict=True))


def page_items(drawn: Sequence[tuple[Pair, Literal["a", "b"]]]) -> list[dict[str, Any]]:
    """What the page holds of each pair: problem, reference answer, first and second answer."""
    return [
        {
            "problem": shown(pair.problem),
            "gold": None if pair.gold is None else shown(pair.gold),
            "answers": [shown(text) for text in ((pair.a, pair.b) if first == "a" else (pair.b, pair.a))],
        }
        for pair, first in drawn
    ]


def shown(text: str) -> dict[str, Any]:
    """A text as it is shown: ``pieces`` with formulas, and ``source`` where that differs."""
    source = plain_text(text, MAX_ANSWER)
    drawn: list[Piece] = pieces(source) or ["[no text]"]
    if len(text) > MAX_ANSWER:
        drawn = [*drawn, f"\n[{len(text) - MAX_ANSWER} more characters are not shown]"]
    return {"pieces": drawn} | ({} if all(isinstance(piece, str) for piece in drawn) else {"source": source})


def page_hash(items: Sequence[dict[str, Any]]) -> str:
    """SHA-256 of what the page shows: ratings, key and page belong together when they bear the same."""
    return hashlib.sha256(json.dumps(items, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def make_page(
    a: Source, b: Source, pairs: Pairs, *, number: int | None = None, seed: int | None = None
) -> tuple[str, Key]:
    """The page as HTML and its key.

    Args:
        number: problems on the page at most; None: all whose answers differ.
        seed: of order and places; None: drawn from the operating system's entropy.
    """
    seed = secrets.randbits(63) if seed is None else seed
    drawn = draw(pairs.different, number, seed)
    items = page_items(drawn)
    page = page_hash(items)
    key = Key(
        page=page,
        a=plain_text(a.name, 1000),
        b=plain_text(b.name, 1000),
        seed=seed,
        items=[KeyItem(problem=plain_text(pair.problem, 300), first=first) for pair, first in drawn],
        identical=pairs.identical,
        not_drawn=len(pairs.different) - len(drawn),
    )
    return render(items, page), key


def render(items: Sequence[dict[str, Any]], page: str) -> str:
    """The page; its only script is named by its hash in the content-security policy, so that no other can run."""
    script = (TEMPLATES / "blind.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("blind.html.j2").render(
        data={"page": page, "items": list(items)}, script=script, script_hash=digest
    )
