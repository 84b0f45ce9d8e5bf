"""Two sources of answers, and people made of dice who rate a page of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

from eval.blind.answers import Source, paired, read_source
from eval.blind.page import Key, make_page
from eval.blind.ratings import Ratings

GRADES = {"a": (4, 5), "b": (1, 2)}


def write_sources(folder: Path, number: int, text=lambda side, i: f"{side}{i}") -> tuple[Path, Path]:
    """Two files with ``number`` problems each; ``text(side, i)`` is the answer of side "a" or "b"."""
    files = folder / "first_model.jsonl", folder / "second_model.jsonl"
    for side, file in zip("ab", files, strict=True):
        rows = [{"problem": f"problem {i}", "output": text(side, i), "gold": str(i)} for i in range(number)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return files


def made(folder: Path, problems: int, **options) -> tuple[str, Key, tuple[Source, Source]]:
    sources = tuple(read_source(str(file)) for file in write_sources(folder, problems))
    page, key = make_page(*sources, paired(*sources), **options)
    return page, key, sources


def rating_row(key: Key, item: int, winner: str, grades=GRADES) -> dict:
    """One complete rating: ``winner`` ("a", "b" or "tie") is preferred; grades are (clarity, brevity) of a and b."""
    sides = [key.items[item].first, "b" if key.items[item].first == "a" else "a"]
    marks = [
        {"correctness": "right" if side == "a" else "wrong", "clarity": grades[side][0], "brevity": grades[side][1]}
        for side in sides
    ]
    preference = "tie" if winner == "tie" else ("first", "second")[sides.index(winner)]
    return {
        "item": item,
        "first": marks[0],
        "second": marks[1],
        "preference": preference,
        "seconds": 3.5,
        "gold_seen": False,
    }


def rater(key: Key, name: str, prefer_a: float, *, seed: int, ties: float = 0.0, items=None) -> Ratings:
    """A person who finds a tie with chance ``ties``, else a better with chance ``prefer_a``."""
    rng = random.Random(f"{seed} {name}")
    rows = []
    for item in range(len(key.items)) if items is None else items:
        winner = "tie" if rng.random() < ties else "a" if rng.random() < prefer_a else "b"
        rows.append(rating_row(key, item, winner))
    row = {"format": "blind-ratings/1", "page": key.page, "rater": name, "items": len(key.items), "ratings": rows}
    return Ratings.model_validate_json(json.dumps(row))
