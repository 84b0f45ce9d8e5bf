"""Is an answer the gold answer? A ladder that stops at the first decision; policies are written in `docs/grading.md`.

Exact text, exact rational arithmetic, structure (tuples, sets, intervals, matrices, quantities), different values at
sample points, and last SymPy in a killable process. Model text is never evaluated.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from fractions import Fraction

from common.records import Verdict
from grading.compare import Beyond, Trace, equal
from grading.extract import extract
from grading.normalise import clean, plain_text
from grading.parse import ParseError, TooDeep
from grading.settings import DEFAULT, GradingSettings
from grading.structure import parse_cleaned
from grading.values import TooLarge, Undefined, exact
from grading.workers import SymbolicTimeout, Unanswered

MAX_TEXT = 20_000
"""Answers longer than this many characters are not looked at (TOO_LONG)."""
_INTEGER = re.compile(r"-?\d{1,18}")
_MONEY = re.compile(r"\\?\$(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.00)?")
_MIXED = re.compile(r"(?<![\d.])(\d+)\s*(?=\\frac)")
_CHOICE = re.compile(r"\(([A-J])\)|([A-J])(?=\s*$|\s*[:.)]\s|\s*\\|\s+\d)")

_MORE_CHOICES = re.compile(r"\s*[,;]|.*(?:\([A-J]\)|\b(?:and|or|not)\s+\(?[A-J]\b)", re.S)
"""What makes of "(B) ..." more than one choice."""


@dataclasses.dataclass(frozen=True)
class Grade:
    """A verdict and the rung of the ladder that decided: ``text``, ``exact``, ``structure``, ``numeric``,
    ``symbolic``, ...
    """

    verdict: Verdict
    how: str


def grade(answer: str | None, gold: str, settings: GradingSettings = DEFAULT) -> Grade:
    """Judge an extracted answer. None (no answer stated) is UNPARSED. Never raises on any text."""
    try:
        return _grade(answer, gold, settings)
    except _OutOfTime as error:
        return error.args[0]


def grade_completion(text: str, gold: str, settings: GradingSettings = DEFAULT) -> Grade:
    """Extract the answer of a whole solution and judge it."""
    return grade(extract(text).answer, gold, settings)


def grade_batch(pairs: Sequence[tuple[str | None, str]], settings: GradingSettings = DEFAULT) -> list[Grade]:
    """Judge (answer, gold) pairs: one grade a pair, in order; equal pairs are judged once."""
    grades = {pair: grade(*pair, settings) for pair in dict.fromkeys(pairs)}
    return [grades[pair] for pair in pairs]


@functools.lru_cache(maxsize=65_536)
def vote_key(answer: str) -> Fraction | str:
    """Return what stands for an answer in a majority vote: its exact value if it has one, else its cleaned text.

    1/2, 0.5, x = 0.5 and \\frac12 are one vote; units and percent signs say nothing.
    Equality that only SymPy sees is not merged: votes must be cheap.
    """
    text = clean(answer[:MAX_TEXT])
    try:
        node = parse_cleaned(text)
        while node[0] in ("named", "quantity"):
            node = node[2] if node[0] == "named" else node[1]
        value = exact(node)
    except (ParseError, RecursionError, TooLarge, Undefined):
        value = None
    return "".join(text.split()).casefold() if value is None else value


class _OutOfTime(Exception):
    """Carries a TIMEOUT past the cache: how busy the machine was must not be remembered as a fact of the answer."""


@functools.lru_cache(maxsize=65_536)
def _grade(answer: str | None, gold: str, settings: GradingSettings) -> Grade:
    gold = gold_answer(gold)
    if not gold:
        return Grade(Verdict.NO_GOLD, "empty gold")
    if answer is None or not answer.strip():
        return Grade(Verdict.UNPARSED, "no answer")
    answer = answer.strip()
    if settings.is_exact and _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
        return _decided(int(answer) == int(gold), "exact")
    money = _MONEY.fullmatch(answer)
    if money and settings.is_exact and settings.units != "required" and _INTEGER.fullmatch(gold):
        return _decided(int(money[1].replace(",", "")) == int(gold), "exact")
    if answer == gold:
        return Grade(Verdict.CORRECT, "text") if _is_defined(gold) else Grade(Verdict.NO_GOLD, "undefined gold")
    if len(answer) > MAX_TEXT:
        return Grade(Verdict.TOO_LONG, "length")
    answer, gold = clean(answer), clean(gold)
    if settings.mixed_numbers == "product":
        answer, gold = (_MIXED.sub(r"\1 \\cdot ", text) for text in (answer, gold))
    return _grade_trees(answer, gold, settings)


def gold_answer(gold: str) -> str:
    """Return the answer of a gold field that may hold a whole solution."""
    if "####" in gold:
        return gold.rsplit("####", 1)[1].strip()
    if "\\boxed" in gold:
        return (extract(gold).answer or "").strip()
    return gold.strip()


def _is_defined(gold: str) -> bool:
    return any(character.isalnum() or character == "\\" for character in gold) or not gold.isascii()


def _decided(is_equal: bool, how: str) -> Grade:
    return Grade(Verdict.CORRECT if is_equal else Verdict.WRONG, how)


def _grade_trees(answer: str, gold: str, settings: GradingSettings) -> Grade:
    if answer == gold:
        return Grade(Verdict.CORRECT, "text")
    if re.fullmatch(r"\(?[A-J]\)?", plain_text(gold).upper()) and len(plain_text(gold)) == 1:
        choice = _CHOICE.match(re.sub(r"\\(?:text|mathrm|textbf|mbox|mathbf)\s*\{([^{}]*)\}", r"\1", answer).strip())
        if choice is None or _MORE_CHOICES.match(choice.string, choice.end()):
            return _decided(False, "choice")
        return _decided((choice[1] or choice[2]) == plain_text(gold).upper(), "choice")
    try:
        gold_tree = parse_cleaned(gold)
    except (TooDeep, RecursionError):
        return Grade(Verdict.NO_GOLD, "gold beyond limits")
    except ParseError:
        is_same = bool(re.search(r"[A-Za-z]", gold)) and _same_text(answer, gold)
        return Grade(Verdict.CORRECT, "text") if is_same else Grade(Verdict.NO_GOLD, "gold not readable")
    if gold_tree[0] == "text":
        return _decided(plain_text(answer) == gold_tree[1], "text")
    try:
        tree = parse_cleaned(answer)
    except (TooDeep, RecursionError):
        return Grade(Verdict.TOO_LONG, "beyond limits")
    except ParseError:
        return Grade(Verdict.UNPARSED, "not readable")
    if tree[0] == "text" and plain_text(gold) == tree[1]:  # \\text{odd} where the gold says odd
        return Grade(Verdict.CORRECT, "text")
    trace = Trace(settings)
    try:
        is_equal = equal(tree, gold_tree, trace)
        return _decided(is_equal, trace.rungs[-1] if trace.rungs else "structure")
    except (Beyond, TooLarge, RecursionError):
        return Grade(Verdict.TOO_LONG, "beyond limits")
    except Undefined:
        return Grade(Verdict.WRONG, "undefined")
    except Unanswered as error:
        how = "symbolic" if isinstance(error, SymbolicTimeout) else "symbolic failure"
        raise _OutOfTime(Grade(Verdict.TIMEOUT, how)) from error


def _same_text(a: str, b: str) -> bool:
    strip = str.maketrans("", "", " {}")
    return a.translate(strip) == b.translate(strip)
