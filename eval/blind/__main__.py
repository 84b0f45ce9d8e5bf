"""``python -m eval.blind make``: a page on which people compare two models blind; ``score``: what they said.

Exit code 2 with one line when the input can be mended.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from common.errors import InputError
from common.runs import write_atomic
from eval.blind.answers import Pairs, Source, paired, read_source
from eval.blind.maths import can_typeset
from eval.blind.page import Key, make_page
from eval.blind.ratings import read_ratings
from eval.blind.score import Agreement, BlindScore, score
from eval.schema import Figure, read_record, write_record
from eval.table import Kind, shown_interval, shown_value


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        (_make if options.command == "make" else _score)(options)
    except InputError as error:
        print(f"eval.blind: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eval.blind", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write the page and, apart from it, its key")
    source = "run (its policy; RUN:base is its base), RUN/round-K, benchmark folder, or JSON Lines"
    make.add_argument("--a", required=True, metavar="RUN_OR_FILE", help=source)
    make.add_argument("--b", required=True, metavar="RUN_OR_FILE", help="the same of the other model")
    make.add_argument("--out", type=Path, default=Path("blind.html"), help="the page; the key is <name>.key.json")
    make.add_argument("--problems", type=int, default=40, help="problems on the page; those with equal answers are not")
    make.add_argument("--seed", type=int, default=None, help="of order and places; default: drawn, kept in the key")
    rate = commands.add_parser("score", help="wins, ratings by criterion, agreement")
    rate.add_argument("key", type=Path, help="the key that make wrote")
    rate.add_argument("ratings", type=Path, nargs="+", help="exported ratings, one file a person")
    return parser


def _make(options: argparse.Namespace) -> None:
    if options.problems < 1:
        raise InputError(f"--problems {options.problems}: must be 1 or more")
    if not options.out.parent.is_dir():
        raise InputError(f"--out {options.out}: no folder {options.out.parent}")
    place = options.out.with_suffix(".key.json")
    if place == options.out:
        raise InputError(f"--out {options.out}: the key would have the same name; want a name that ends in .html")
    a, b = read_source(options.a), read_source(options.b)
    pairs = paired(a, b)
    page, key = make_page(a, b, pairs, number=options.problems, seed=options.seed)
    if place.is_file() and read_record(place, Key).page != key.page:
        raise InputError(f"{place}: the key of another page; ratings of it would be lost, use another --out")
    write_record(place, key)
    write_atomic(options.out, page)
    print(f"page: {options.out} ({len(key.items)} problems, {len(page.encode()) / 1e6:.2f} MB)")
    print(f"key:  {place}; keep it from those who rate")
    for note in _notes(a, b, pairs, key):
        print(f"note: {note}")


def _notes(a: Source, b: Source, pairs: Pairs, key: Key) -> list[str]:
    notes = []
    if pairs.identical:
        notes.append(f"{pairs.identical} problems with the same text by both are not on the page")
    if pairs.only_a or pairs.only_b:
        notes.append(f"{pairs.only_a} problems of a and {pairs.only_b} of b have no answer by the other")
    if len(key.items) < 20:
        notes.append(f"{len(key.items)} problems decide little: even 5 of 5 leaves 0.48 to 1 open")
    if not can_typeset():
        notes.append("formulas are shown as they were written; pip install 'stepwise-ppo[blind]' typesets them")
    words = {word for name in (a.name, b.name) for word in re.split(r"\W+", name) if len(word) > 3}
    texts = [text for pair in pairs.different for text in (pair.a, pair.b)]
    for word in sorted(words - {"runs", "round", "base", "policy", "outputs", "jsonl"}):
        count = sum(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None for text in texts)
        if count:
            notes.append(f"{count} answers hold the word {word!r} of a source's name; it may tell who wrote them")
    return notes


def _score(options: argparse.Namespace) -> None:
    key = read_record(options.key, Key)
    result = score(key, read_ratings(options.ratings, key))
    print_score(result, Console())
    print(result.model_dump_json())


def print_score(result: BlindScore, console: Console) -> None:
    """Print who rated how much, the wins and the table of criteria."""
    say = lambda line: console.print(Text(line))  # noqa: E731 texts of users are no markup
    say(f"a = {result.a}    b = {result.b}    page {result.page[:12]}, {result.problems} problems")
    for one in result.raters:
        rest = f", {one.partial} partial, {one.missing} missing" if one.partial + one.missing else ""
        say(f"{one.rater}: {one.complete} complete{rest}")
    wins = result.preference
    say(f"votes: a {wins.votes_a}, tie {wins.ties}, b {wins.votes_b}; share of a (ties half): {_text(wins.share_a)}")
    test = "" if wins.sign_test is None else f", sign test p = {wins.sign_test:.3g}"
    say(f"problems by majority: a {wins.problems_a}, tied {wins.problems_tied}, b {wins.problems_b}")
    say(f"a among the decided, exact: {_text(wins.decided_a)}{test}")
    say(f"first place among the decided votes: {_text(wins.first_place)} (0.5: the place was not rated)")
    say(f"agreement on the preference: {_alpha(wins.agreement)}")
    table = Table(caption="95 % intervals over problems; alpha: Krippendorff's, 1 full agreement, 0 chance")
    for name in ("", "a", "b", "a − b", "alpha"):
        table.add_column(name)
    for name, row in result.criteria.items():
        kind: Kind = "share" if name == "correctness" else "number"
        label = f"{name}, % right" if name == "correctness" else f"{name}, 1 to 5"
        cells = [_text(row.a, kind), _text(row.b, kind), _text(row.difference, kind, signed=True)]
        table.add_row(*[Text(cell) for cell in (label, *cells, _alpha(row.agreement))])
    console.print(table)


def _text(figure: Figure, kind: Kind = "number", *, signed: bool = False) -> str:
    shown = f"{shown_value(figure, kind, signed=signed)} {shown_interval(figure, kind, signed=signed)}".strip()
    return shown if figure.ci95 else f"{shown} ({figure.reason})"


def _alpha(agreement: Agreement) -> str:
    return f"{agreement.alpha:.2f}" if agreement.alpha is not None else f"– ({agreement.reason})"


if __name__ == "__main__":
    sys.exit(main())
