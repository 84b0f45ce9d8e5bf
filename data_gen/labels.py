"""Step labels with evidence, from the correct paths of the same problem and from exact arithmetic. Pure.

For one problem, ``support(step)`` is the number of OTHER CORRECT paths that hold the step's key. Keys are a ladder
(`data_gen.step_keys`): an equation is looked up first together with the state it starts from (the equations before
it, in any order), so that right arithmetic at the wrong place is not supported; only where no correct path passes
through that state is the equation looked up alone. Prose is looked up by the value it arrives at; a step without a
number claims nothing.

Axis letters: G paths of one problem, S steps of one path.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from common.records import IGNORED, LabelledPath, Path, Verdict
from data_gen.step_keys import StepKey, falsehoods, step_key

Rule = Literal["forward", "backward"]
State = frozenset[tuple[str, int]]


@dataclasses.dataclass(frozen=True)
class LabelSettings:
    """How labels are made.

    Attributes:
        rule: ``forward``: the first error e is the first unsupported step. ``backward``: the earliest step of the
            unsupported run that reaches the end; the last step when that is supported.
        sources: ``frequency`` (support) and/or ``arithmetic`` (a step that exact algebra refutes is an error
            whatever its support: a false numeric equation, or a linear equation whose solution is not that of the
            one before it).
        min_support: a step found in this many or fewer other correct paths is unsupported.
        after_error: ``negative``: steps from e on are 0; ``ignore``: e is 0 and later steps enter no loss.
        false_in_correct: a CORRECT path with a false equation (two errors that cancel): ``keep`` every step 1,
            ``label`` it by arithmetic, or ``drop`` it. It lends no support either way when arithmetic is a source.
        min_share: also unsupported is a step that fewer than this share of the other correct paths through its state
            go on with: a correct path that hides a wrong step must not vouch for it.
    """

    rule: Rule = "forward"
    sources: tuple[str, ...] = ("frequency", "arithmetic")
    min_support: int = 0
    after_error: Literal["negative", "ignore"] = "negative"
    false_in_correct: Literal["keep", "label", "drop"] = "label"
    min_share: float = 0.34

    def __post_init__(self) -> None:
        unknown = set(self.sources) - {"frequency", "arithmetic"}
        if unknown or not self.sources:
            raise ValueError(f"label sources {self.sources}: wanted 'frequency', 'arithmetic' or both")

    @property
    def name(self) -> str:
        """The labels' source as records carry it, e.g. ``frequency+arithmetic:forward``."""
        return f"{'+'.join(self.sources)}:{self.rule}"


@dataclasses.dataclass(frozen=True)
class LabelSummary:
    """Counts of one labelling run.

    Attributes:
        paths, labelled: paths given, paths labelled.
        left_out: paths without labels by reason: a verdict's name, ``truncated``, ``no_correct_path``, ``no_steps``,
            ``no_error_found`` (a wrong path in which every source found nothing), ``false_equation_in_correct``.
        problems, problems_without_correct: problems given; those among them without a correct path.
        steps: labelled steps by label ("1", "0", "ignored").
        coverage: share of judged, not truncated paths that got labels.
        unsupported_in_correct: share of the steps of correct paths that no other correct path supports (leave one
            out), over problems with at least two correct paths; how sparse the keys are.
    """

    paths: int
    labelled: int
    left_out: Mapping[str, int]
    problems: int
    problems_without_correct: int
    steps: Mapping[str, int]
    coverage: float
    unsupported_in_correct: float

    def to_row(self) -> dict[str, object]:
        return dataclasses.asdict(self)


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

    def is_missing(self, settings: LabelSettings) -> bool:
        """True when the step is unsupported. A step that claims nothing never is."""
        if self.key == "none":
            return False
        return self.count <= settings.min_support or self.count < settings.min_share * self.passing


class _Pool:
    """The keys of the correct paths of one problem."""

    def __init__(self, correct: Sequence[Sequence[StepKey]]) -> None:
        self.at_state: dict[State, Counter[str]] = {}
        self.alone: Counter[tuple[str, str]] = Counter()
        for keys in correct:
            claims = [(state, key) for state, key in zip(states(keys), keys, strict=True) if key.kind != "none"]
            for state, key in claims:
                self.at_state.setdefault(state, Counter())[key.key] += 1
            self.alone.update({(key.kind, key.key) for key in keys})

    def support(self, state: State, key: StepKey, own: int) -> Support:
        """Return the support of a step, `own` (0 or 1) being what the step's own path contributed to the counts."""
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


def _supports(keys: Sequence[StepKey], pool: _Pool, is_own: bool) -> list[Support]:
    return [pool.support(state, key, int(is_own)) for state, key in zip(states(keys), keys, strict=True)]


def first_error_by_rule(is_unsupported: Sequence[bool], rule: Rule) -> int | None:
    """Return the first error e from which steps have support.

    forward: e = min {k : unsupported}, None when there is none. backward: the earliest step of the unsupported run
    that reaches the end; when the last step is supported, the last step.
    """
    if rule == "forward":
        return next((k for k, flag in enumerate(is_unsupported) if flag), None)
    if not is_unsupported:
        return None
    k = len(is_unsupported)
    while k > 0 and is_unsupported[k - 1]:
        k -= 1
    return min(k, len(is_unsupported) - 1)


def _first_error(refuted: Sequence[bool], supports: Sequence[Support], settings: LabelSettings) -> int | None:
    found = []
    if any(refuted):
        found.append(list(refuted).index(True))
    if "frequency" in settings.sources:
        by_rule = first_error_by_rule([support.is_missing(settings) for support in supports], settings.rule)
        found += [] if by_rule is None else [by_rule]
    return min(found, default=None)


def labels_from_first_error(n_steps: int, first_error: int | None, after_error: str) -> tuple[int, ...]:
    """Return 1 before the first error e, 0 at e, and behind it 0 (``negative``) or IGNORED (``ignore``)."""
    if first_error is None:
        return (1,) * n_steps
    behind = 0 if after_error == "negative" else IGNORED
    return (1,) * first_error + (0,) + (behind,) * (n_steps - first_error - 1)


def _refuted(keys: Sequence[StepKey], settings: LabelSettings) -> list[bool]:
    return falsehoods(keys) if "arithmetic" in settings.sources else [False] * len(keys)


def _left_out(path: Path) -> str | None:
    if path.verdict not in (Verdict.CORRECT, Verdict.WRONG):
        return path.verdict.value
    if path.is_truncated:
        return "truncated"
    return None if path.steps else "no_steps"


def label_paths(
    paths: Sequence[Path], settings: LabelSettings | None = None
) -> tuple[list[LabelledPath], LabelSummary]:
    """Label the paths of any number of problems.

    A CORRECT path is 1 at every step (see `LabelSettings.false_in_correct` for the one exception); frequency never
    lowers it. A WRONG path is 1 before its first error. Paths that are not judged or cut off, paths of a problem
    without a correct path (when frequency is the only source) and wrong paths in which no error is found are left
    out and counted.

    Returns:
        labelled paths in the order given, and the summary.
    """
    settings = settings or LabelSettings()
    by_problem: dict[str, list[int]] = {}
    for i, path in enumerate(paths):
        by_problem.setdefault(path.problem_id, []).append(i)
    labelled: dict[int, LabelledPath] = {}
    left_out: Counter[str] = Counter()
    sparse: list[bool] = []
    without_correct = 0
    for members in by_problem.values():
        usable = []
        for i in members:
            reason = _left_out(paths[i])
            left_out.update([reason] if reason else [])
            usable += [] if reason else [i]
        keys = {i: [step_key(step.text) for step in paths[i].steps] for i in usable}
        correct = [i for i in usable if paths[i].verdict is Verdict.CORRECT]
        without_correct += not correct
        refuted = {i: _refuted(keys[i], settings) for i in usable}
        clean = {i for i in correct if not any(refuted[i])}
        pool = _Pool([keys[i] for i in clean])
        for i in usable:
            supports = _supports(keys[i], pool, i in clean)
            if i in clean and len(clean) > 1:
                sparse += [s.key != "none" and s.count <= settings.min_support for s in supports]
            result = _label(paths[i], refuted[i], supports, settings, has_pool=bool(clean))
            if isinstance(result, str):
                left_out[result] += 1
            else:
                labelled[i] = result
    done = [labelled[i] for i in sorted(labelled)]
    unjudged = sum(left_out[v.value] for v in Verdict) + left_out["truncated"]
    steps = Counter("ignored" if label == IGNORED else str(label) for row in done for label in row.labels)
    return done, LabelSummary(
        paths=len(paths),
        labelled=len(done),
        left_out=dict(sorted(left_out.items())),
        problems=len(by_problem),
        problems_without_correct=without_correct,
        steps=dict(steps),
        coverage=len(done) / max(len(paths) - unjudged, 1),
        unsupported_in_correct=sum(sparse) / max(len(sparse), 1),
    )


def _label(
    path: Path, refuted: Sequence[bool], supports: Sequence[Support], settings: LabelSettings, *, has_pool: bool
) -> LabelledPath | str:
    """Return the labelled path, or the reason why it is left out."""
    if path.verdict is Verdict.CORRECT:
        error = list(refuted).index(True) if any(refuted) and settings.false_in_correct != "keep" else None
        if error is not None and settings.false_in_correct == "drop":
            return "false_equation_in_correct"
    else:
        if not has_pool:
            return "no_correct_path"
        error = _first_error(refuted, supports, settings)
        if error is None:
            return "no_error_found"
    return LabelledPath(
        path=path,
        labels=labels_from_first_error(len(path.steps), error, settings.after_error),
        first_error=error,
        support=tuple(s.count for s in supports),
        keys=tuple("arithmetic" if is_refuted else s.key for is_refuted, s in zip(refuted, supports, strict=True)),
        source=settings.name,
    )


def label_quality(labelled: Sequence[LabelledPath], oracle_first_errors: Sequence[int | None]) -> dict[str, float]:
    """Compare labels with the true first errors (None: no wrong step), path by path.

    Returns shares: ``first_error_exact`` (WRONG paths with a true error: same index), ``negative_precision`` (steps
    labelled 0 that are at or behind the true first error), ``negative_recall`` (steps at or behind it, in all
    labelled paths, that are labelled 0), ``label_accuracy``, ``hidden_wrong_in_correct`` (CORRECT paths with a true
    wrong step), and counts ``paths``, ``wrong_paths``. Ignored steps count in none. A share over nothing is 1.0
    (``hidden_wrong_in_correct``: 0.0).
    """
    exact = wrong = hidden = correct = 0
    true_negative = said_negative = are_negative = agree = total = 0
    for row, truth in zip(labelled, oracle_first_errors, strict=True):
        if row.path.verdict is Verdict.CORRECT:
            correct += 1
            hidden += truth is not None
        elif truth is not None:
            wrong += 1
            exact += row.first_error == truth
        for k, label in enumerate(row.labels):
            is_wrong = truth is not None and k >= truth
            if label == IGNORED:
                continue
            total += 1
            agree += (label == 0) == is_wrong
            said_negative += label == 0
            are_negative += is_wrong
            true_negative += label == 0 and is_wrong
    share = lambda part, whole: part / whole if whole else 1.0  # noqa: E731
    return {
        "first_error_exact": share(exact, wrong),
        "negative_precision": share(true_negative, said_negative),
        "negative_recall": share(true_negative, are_negative),
        "label_accuracy": share(agree, total),
        "hidden_wrong_in_correct": hidden / correct if correct else 0.0,
        "paths": len(labelled),
        "wrong_paths": wrong,
    }


if __name__ == "__main__":
    from data_gen.rows import label_rows

    raise SystemExit(label_rows())
