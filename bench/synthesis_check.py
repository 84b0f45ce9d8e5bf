"""Are the answers of made problems right? ``python -m bench.synthesis_check --input problems.jsonl``: one JSON line.

Independent of what made them: of a row it judges problem text and answer only, with patterns and a formula reader of
its own, and decides by exact rational arithmetic (python-flint, ``pip install python-flint``), brute force or
substitution. It shares no code with ``data_gen`` and ``grading`` and does not use SymPy. A text that no reader knows
counts as ``unread`` and is shown. Exit code 1 when an answer is wrong, a problem is there twice, a text was not read,
or a hard problem was derived in one way only (the row says so).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

from common.errors import InputError
from common.runs import read_rows


def check_row(text: str, answer: str) -> str:
    """``right``, ``wrong`` or ``unread``."""
    from bench.synthesis_formula import Unread, same, value_of
    from bench.synthesis_stories import story_answer
    from bench.synthesis_symbols import symbolic_answer_holds

    try:
        wanted = story_answer(text)
        if wanted is not None:
            return "right" if same(value_of(answer), wanted) else "wrong"
        return "right" if symbolic_answer_holds(text, answer) else "wrong"
    except (AssertionError, Unread, StopIteration, TypeError, IndexError, KeyError, ValueError, ZeroDivisionError):
        return "unread"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.synthesis_check", description=__doc__)
    parser.add_argument("--input", type=Path, required=True, help="problems.jsonl")
    parser.add_argument("--show", type=int, default=5, help="wrong or unread problems that are printed")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    verdicts: Counter[str] = Counter()
    by_topic: dict[str, Counter[str]] = {}
    seen: set[str] = set()
    twice = shown = hard = hard_twice = 0
    try:
        for row in read_rows(options.input):
            text, answer = row["problem"], row["answer"]
            verdict = check_row(text, answer)
            verdicts[verdict] += 1
            by_topic.setdefault(row.get("topic", "?"), Counter())[verdict] += 1
            key = re.sub(r"[\s$.,?!]+", " ", text.lower())
            twice += key in seen
            seen.add(key)
            hard += row.get("difficulty") == "hard"
            hard_twice += row.get("difficulty") == "hard" and len(row.get("derived_by", ())) > 1
            if verdict != "right" and shown < options.show:
                shown += 1
                print(f"{verdict}: {text} -> {answer}", file=sys.stderr)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    result = {
        "problems": sum(verdicts.values()), **{name: verdicts[name] for name in ("right", "wrong", "unread")},
        "duplicates": twice, "hard": hard, "hard_derived_twice": hard_twice,
        "topics": {topic: dict(counts) for topic, counts in sorted(by_topic.items())},
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip
    print(json.dumps(result))
    return 0 if verdicts["right"] == result["problems"] and not twice and hard == hard_twice else 1


if __name__ == "__main__":
    raise SystemExit(main())
