"""The signals reward: eight symbolic checks of a path, each a pure function into [0, 1]. No model judges anything.

    R = sum_i weight_i * signal_i      (``common.signal_settings``: weights, and why no wrong answer beats a right one)

The verdict of the project's grader decides what is right. All else is read from text and can be written by a policy
that has understood nothing, so all of it together does not make up for a wrong answer. docs/signals.md says what each
signal can be made to believe. Model text is matched, parsed by the grader's bounded grammar and never evaluated.
Reading is bounded: ``MAX_STEPS`` steps, ``MAX_STEP_TEXT`` characters of a step, ``MAX_NUMBERS`` numbers of a step.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from fractions import Fraction

from common.records import Path, Problem, Verdict
from common.signal_settings import SIGNALS, SignalSettings
from data_gen.claims import mentioned, stated_last
from data_gen.grounding import StepNumbers, is_refuted, rational, step_numbers
from grading.equivalence import gold_answer, vote_key
from grading.extract import extract
from policy.rewards import STEP_FLOOR, OutcomeReward, repeated_words, repeats, typical_steps

NEAR_SCALE = Fraction(1, 10)
"""Relative error at which the partial credit of a wrong number has fallen to 1/e."""
MAX_STEPS = 200
MAX_STEP_TEXT = 2_000

_ANNOUNCED = ("box", "marker", "phrase")
_CLOSING = re.compile(r"[\s.$*_)\]}\\]*")


@dataclasses.dataclass(frozen=True)
class Signals:
    """The eight signals of one path, each in [0, 1]; the functions of this module say what each is."""

    correctness: float = 0.0
    consistency: float = 0.0
    depth: float = 0.0
    grounding: float = 0.0
    format: float = 0.0
    parsable: float = 0.0
    length: float = 0.0
    repetition: float = 0.0

    def reward(self, weights: SignalSettings) -> float:
        """Return R in [0, 1]."""
        return math.fsum(getattr(weights, name) * getattr(self, name) for name in SIGNALS)

    def around_the_answer(self, weights: SignalSettings) -> float:
        """Return what R holds beside correctness and parsable: what a policy can earn without solving anything."""
        solved = weights.correctness * self.correctness + weights.parsable * self.parsable
        return self.reward(weights) - solved


def path_signals(
    problem: Problem, path: Path, is_right: bool, settings: SignalSettings, *, typical: float | None, max_tokens: int
) -> Signals:
    """Return the signals of a path that counts.

    A path cut at the length limit, one whose answer the grader could not read, and one whose answer is CORRECT and yet
    not right (no steps behind it) has no answer here, whatever stands in it.

    Args:
        is_right: True = the outcome is 1 (``policy.rewards.outcome_of``).
        typical: the problem's typical number of steps (``policy.rewards.typical_steps``).
        max_tokens: length limit of a path, tokens.
    """
    if not path.text.strip():
        return Signals()
    steps = [step.text[:MAX_STEP_TEXT] for step in path.steps[:MAX_STEPS]]
    has_answer = not path.is_truncated and (is_right or path.verdict is Verdict.WRONG)
    answer = path.answer if has_answer else None
    numbers = step_numbers(problem.text, steps)
    return Signals(
        correctness=correctness(answer, is_right, problem.answer, settings.near),
        consistency=consistency(answer, steps),
        depth=depth(numbers, typical),
        grounding=grounding(numbers),
        format=answer_format(path.text) if answer is not None else 0.0,
        parsable=parsable(answer, is_right, problem.answer),
        length=length_in_range(len(path.token_ids), max_tokens, settings.short, settings.long),
        repetition=1 - max(repeated_words(path.text), repeats(steps) / max(len(steps), 1)),
    )


def group_signals(
    problem: Problem, paths: Sequence[Path], rewards: Sequence[OutcomeReward], settings: SignalSettings, max_tokens: int
) -> list[Signals | None]:
    """Return the signals of each path of ONE problem, None for one that does not count.

    Args:
        rewards: outcome rewards of the paths. max_tokens: length limit of a path, tokens.
    """
    typical = typical_steps(paths, problem.level)
    return [
        path_signals(problem, path, reward.outcome == 1, settings, typical=typical, max_tokens=max_tokens)
        if reward.is_counted
        else None
        for path, reward in zip(paths, rewards, strict=True)
    ]


def correctness(answer: str | None, is_right: bool, gold: str, near: float) -> float:
    """Return 1 for a right answer, else ``near`` exp(-r / NEAR_SCALE), else 0 where either is no rational number.

    r = |answer - gold| / max(|gold|, 1), exact. What is right the grader has said (symbolic equality); a number that
    has the gold's value and is yet wrong (its unit, its percent sign) gets ``near``.
    """
    if is_right:
        return 1.0
    found, wanted = rational(answer), rational(gold_answer(gold))
    if found is None or wanted is None:
        return 0.0
    errors = abs(found - wanted) / max(abs(wanted), Fraction(1)) / NEAR_SCALE
    return near * math.exp(-float(errors)) if errors < 100 else 0.0


def parsable(answer: str | None, is_right: bool, gold: str) -> float:
    """Return 1 for a right answer and for one that is a rational number where the gold is one; 0 for none."""
    is_kind = rational(answer) is not None or rational(gold_answer(gold)) is None
    return float(is_right or (answer is not None and is_kind))


def consistency(answer: str | None, steps: Sequence[str]) -> float:
    """Return 1 / n when the answer is one of the n values that the last computing step states last, else 0.

    That step is the last one with a number behind an "=", in prose without any the last one with a number. The values:
    all behind its last "=" (a division line states quotient and remainder), so that listing many of them pays little.
    0 also when exact arithmetic refutes an equation of that step.
    """
    computing = [step for step in steps if "=" in step and mentioned(step.rpartition("=")[2])]
    last = next(iter(reversed(computing or [step for step in steps if mentioned(step)])), None)
    if answer is None or last is None or is_refuted(last):
        return 0.0
    if vote_key(last.rpartition("=")[2][:200]) == vote_key(answer):
        return 1.0
    stated = stated_last(last)
    return 1 / len(stated) if rational(answer) in stated else 0.0


def depth(numbers: Sequence[StepNumbers], typical: float | None) -> float:
    """Return the number of steps that derive something new over the usual number of steps, at most 1.

    The usual number: the problem's typical one, at least 1 and at most ``STEP_FLOOR``; ``STEP_FLOOR`` when unknown. So
    more steps than that earn nothing.
    """
    usual = max(1.0, STEP_FLOOR if typical is None else min(STEP_FLOOR, typical))
    return min(1.0, sum(step.is_new for step in numbers) / usual)


def grounding(numbers: Sequence[StepNumbers]) -> float:
    """Return the share of the numbers of all steps that are grounded; 0 without a number."""
    total = sum(step.total for step in numbers)
    return sum(step.grounded for step in numbers) / total if total else 0.0


def answer_format(text: str) -> float:
    """Return the mean of two checks of the announced answer (box, ``####``, answer phrase); 0 when none is announced.

    The two: nothing but white space and closing marks follows it; no other answer is announced before it.
    """
    found = extract(text)
    if found.how not in _ANNOUNCED:
        return 0.0
    is_last = _CLOSING.fullmatch(text, found.end) is not None
    is_only = extract(text[: found.start]).how not in _ANNOUNCED
    return (is_last + is_only) / 2


def length_in_range(num_tokens: int, max_tokens: int, short: float, long: float) -> float:
    """Return 1 for ``short`` .. ``long`` times the length limit, linear to 0 at no token and at the limit.

    Args:
        num_tokens: tokens of the path. max_tokens: the length limit. short, long: shares of it, short <= long.
    """
    share = num_tokens / max_tokens
    if share < short:
        return share / short
    return 1.0 if share <= long else max(0.0, (1 - share) / (1 - long)) if long < 1 else 0.0
