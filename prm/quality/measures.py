"""Redundancy, clarity and detail of a solution, and the record of all five measures. Pure functions on text.

Every measure is in [0, 1] and 1 is best, also redundancy: 1 = no step is redundant. None: nothing can be said.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence, Set

from common.quality_settings import MEASURES
from data_gen.claims import plain_text
from data_gen.step_keys import step_key
from prm.quality.derivation import MAX_PROBLEM, MAX_STEPS, MAX_TEXT, StepValues, edges, share_found, stated, step_values

SAME_WORDS = 0.75
"""Share of a step's content words that an earlier step must hold for the step to be a copy in other words."""
SAME_CALCULATION_WORDS = 0.5
"""The same, when both steps make the same calculation."""
WORDS_A_FACT = 12
"""Words that a fact may take: at this many, density is 1/2. A step of a person's GSM8K solution has about 10."""
FACTS_A_STEP = 2
"""New facts or equations that a step may hold; more of them share its clarity."""
_WORD = re.compile(r"[A-Za-z]{2,}")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_SAYS_SOMETHING = re.compile(r"\d|[=<>≤≥≈\\^]|(?<![A-Za-z'’])[B-HJ-Zb-z](?![A-Za-z'’])")
_FUNCTION_LIST = """
    again all already also altogether an and another answer are as at be because been by can could did do does each
    equal equals every find first for from get give gives had has have he hence her here him his how i'll i'm if in
    into is it it's its just know left let let's lets made make makes may means more most need next no not now
    number of ok on only or other our out result right say see she since so step than that that's the their them
    then there therefore these they this those thus to total up us use using value was we well were what when which
    who will with words would yes you your
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_LIST.split())
"""Words that say how a sentence is built and not what it is about."""


@dataclasses.dataclass(frozen=True)
class Quality:
    """The measures of one solution, each in [0, 1], 1 best; None where nothing can be said."""

    completeness: float | None = None
    redundancy: float | None = None
    coherence: float | None = None
    clarity: float | None = None
    detail: float | None = None

    def value(self, name: str) -> float | None:
        """Return a measure by name."""
        if name not in MEASURES:
            raise ValueError(f"quality measure {name!r}: want one of {', '.join(MEASURES)}")
        found: float | None = getattr(self, name)
        return found


def quality_of(
    problem: str, steps: Sequence[str], answer: str | None, *, usual: float | None, coherence: float | None = None
) -> Quality:
    """Return the measures of a solution.

    Args:
        steps: its steps in order, answer line left out. answer: the final answer as text, None for none.
        usual: deriving steps that are usual for the problem, None when unknown.
        coherence: of ``prm.quality.coherence``.
    """
    problem, steps = problem[:MAX_PROBLEM], [step[:MAX_TEXT] for step in steps[:MAX_STEPS]]
    if not steps:
        return Quality()
    return Quality(
        completeness=share_found(edges(problem, steps, answer)),
        redundancy=mean(novelty_of_steps(problem, steps)),
        coherence=coherence,
        clarity=mean(clarity_of_steps(problem, steps)),
        detail=None if usual is None else detail(deriving_steps(problem, steps), usual),
    )


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, None of nothing."""
    return sum(values) / len(values) if values else None


@functools.lru_cache(maxsize=1 << 15)
def content_words(text: str) -> frozenset[str]:
    """Return the words that say what a text is about, lower case, without plural s and calculator notes."""
    words = (word.lower() for word in _WORD.findall(plain_text(text[:MAX_TEXT])))
    return frozenset(word.removesuffix("s") for word in words if word not in _FUNCTION_WORDS)


def novelty_of_steps(problem: str, steps: Sequence[str]) -> list[float]:
    """Return for each step 0 when an earlier step, or a sentence of the problem, holds all it says, else 1.

    Numbers are compared by value ("12", "12.0", "6+6" in another order), words as a set. A step is held by an earlier
    text when it is the same equation; makes the same calculation and shares ``SAME_CALCULATION_WORDS`` of its content
    words; or states no other value and shares ``SAME_WORDS`` of them. A step without values and content words holds
    nothing that could be repeated and is judged by clarity alone.
    """
    earlier = [sentence for sentence in _SENTENCE.split(problem) if sentence.strip()]
    seen_keys: set[str] = set()
    found = []
    for step in steps:
        key = step_key(step[:MAX_TEXT])
        is_copy = key.kind == "equation" and key.key in seen_keys
        found.append(0.0 if is_copy or any(_holds(text, step) for text in earlier) else 1.0)
        earlier.append(step)
        if key.kind == "equation":
            seen_keys.add(key.key)
    return found


def _holds(earlier: str, step: str) -> bool:
    values, words = step_values(step), content_words(step)
    if not values.numbers and not words:
        return False
    before = step_values(earlier)
    if not values.touched <= before.touched:
        return False
    shared = len(words & content_words(earlier)) / len(words) if words else 1.0
    if _calculation(values) is not None and _calculation(values) == _calculation(before):
        return shared >= SAME_CALCULATION_WORDS
    is_equation = values.has_equation or before.has_equation
    return shared >= SAME_WORDS and not (is_equation and not words)


def _calculation(values: StepValues) -> tuple[Set[object], Set[object]] | None:
    """Return (operands, results) of a step that shows a calculation, else None."""
    if not values.has_equation or not values.results:
        return None
    operands = frozenset(value for number in values.used for value in number.touched)
    results = frozenset(number.value for number in values.results)
    return operands - results, results


def new_facts(problem: str, steps: Sequence[str]) -> list[int]:
    """Return for each step how many values it results in that neither the problem nor an earlier step states; an
    equation that is new and has no such value (a rewriting, a line with an unknown) is one fact."""
    known, seen = set(stated(problem)), set[str]()
    found = []
    for step in steps:
        values, text = step_values(step), "".join(step.split())
        new = {number.value for number in values.results} - known
        is_new_line = values.has_equation and text not in seen
        found.append(len(new) or int(is_new_line))
        known |= values.stated
        seen.add(text)
    return found


def deriving_steps(problem: str, steps: Sequence[str]) -> int:
    """Return how many steps hold a new fact."""
    return sum(facts > 0 for facts in new_facts(problem, steps))


def clarity_of_steps(problem: str, steps: Sequence[str]) -> list[float]:
    """Return the clarity of each step: density * focus * (1 - idle share), F new facts in W words.

    density = F' A / (F' A + W), F' = max(F, 1), A = ``WORDS_A_FACT``: how few words a fact takes.
    focus = min(1, ``FACTS_A_STEP`` / max(F', E)), E equations: a step that holds more should have been several.
    idle share: words in sentences without a number, sign, unknown, or content word of the problem.
    """
    topic = content_words(problem)
    found = []
    for step, facts in zip(steps, new_facts(problem, steps), strict=True):
        sentences = list(_sentences(step))
        words = sum(count for count, _ in sentences)
        idle = sum(count for count, text in sentences if not _is_about(text, topic))
        allowed = max(facts, 1) * WORDS_A_FACT
        values = step_values(step)
        focus = min(1.0, FACTS_A_STEP / max(facts, len(values.results) + len(values.rewritten), 1))
        found.append(allowed / (allowed + words) * focus * (1 - idle / words if words else 1.0))
    return found


def _sentences(step: str) -> Iterator[tuple[int, str]]:
    for text in _SENTENCE.split(plain_text(step[:MAX_TEXT])):
        yield len(_WORD.findall(text)), text


def _is_about(sentence: str, topic: Set[str]) -> bool:
    return _SAYS_SOMETHING.search(sentence) is not None or not content_words(sentence).isdisjoint(topic)


def detail(num_deriving: int, usual: float) -> float:
    """Return min(n / u, u / n) in [0, 1]: 1 for the usual number of deriving steps, 1/2 for half or twice as many.

    Args:
        num_deriving: n, ``deriving_steps``. usual: u, at least 1 counts.
    """
    usual = max(1.0, usual)
    return min(num_deriving / usual, usual / num_deriving) if num_deriving else 0.0
