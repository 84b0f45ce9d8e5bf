"""How many of the other correct paths of a problem support a step: two ways to say that they hold the same step. Pure.

`EquationSupport` reads steps that are equations (`data_gen.step_keys`): an equation is looked up together with the
state it starts from, so that right arithmetic at the wrong place is not supported. `ValueSupport` reads prose
(`data_gen.claims`): a new value is supported by every path that mentions it anywhere.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from data_gen.claims import claims, mentioned
from data_gen.step_keys import StepKey, step_key

State = frozenset[tuple[str, int]]
CLAIMLESS = ("none", "given")
"""Names of keys that claim nothing: such a step is never unsupported."""


@dataclasses.dataclass(frozen=True)
class Support:
    """Evidence for one step.

    Attributes:
        count: other correct paths that hold its key.
        passing: other correct paths that pass through its state (``state+equation`` only, else 0).
        key: name of the key that decided.
    """

    count: int
    passing: int
    key: str

    def is_missing(self, min_support: int, min_share: float) -> bool:
        """True when the step is unsupported. A step that claims nothing never is."""
        if self.key in CLAIMLESS:
            return False
        return self.count <= min_support or self.count < min_share * self.passing


class SupportPool(Protocol):
    """The correct paths of one problem, ready to be asked."""

    def supports(self, steps: Sequence[str], *, is_own: bool) -> list[Support]:
        """Return the support of each step of a path; `is_own`: the path is one of the pool, and does not count."""
        ...


class EquationSupport:
    """Support of equations at the state they start from, of prose by its last number."""

    def __init__(self, correct: Sequence[Sequence[str]]) -> None:
        self.at_state: dict[State, Counter[str]] = {}
        self.alone: Counter[tuple[str, str]] = Counter()
        for steps in correct:
            keys = [step_key(step) for step in steps]
            held = [(state, key) for state, key in zip(states(keys), keys, strict=True) if key.kind != "none"]
            for state, key in held:
                self.at_state.setdefault(state, Counter())[key.key] += 1
            self.alone.update({(key.kind, key.key) for key in keys})

    def supports(self, steps: Sequence[str], *, is_own: bool) -> list[Support]:
        keys = [step_key(step) for step in steps]
        return [self._support(state, key, int(is_own)) for state, key in zip(states(keys), keys, strict=True)]

    def _support(self, state: State, key: StepKey, own: int) -> Support:
        if key.kind == "none":
            return Support(0, 0, "none")
        if key.kind == "equation":
            passing = self.at_state.get(state)
            total = passing.total() - own if passing is not None else 0
            if passing is not None and total > 0:
                return Support(passing[key.key] - own, total, "state+equation")
        return Support(self.alone[(key.kind, key.key)] - own, 0, key.kind)


def states(keys: Sequence[StepKey]) -> list[State]:
    """Return for each step the state it starts from: the claims of the steps before it with their counts, order
    left out.
    """
    seen: Counter[str] = Counter()
    before = []
    for key in keys:
        before.append(frozenset(seen.items()))
        if key.kind != "none":
            seen[key.key] += 1
    return before


class ValueSupport:
    """Support of the new values a path arrives at; steps that only restate are `given` and need none."""

    def __init__(self, problem: str, correct: Sequence[Sequence[str]]) -> None:
        self.problem = problem
        self.paths_with: Counter[Fraction] = Counter()
        for steps in correct:
            self.paths_with.update(frozenset().union(*map(mentioned, steps)))

    def supports(self, steps: Sequence[str], *, is_own: bool) -> list[Support]:
        found = []
        for claim in claims(self.problem, steps):
            count = self.paths_with[claim.value] - int(is_own) if claim.value is not None else 0
            found.append(Support(count, 0, claim.kind))
        return found
