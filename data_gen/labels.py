"""Step labels with evidence, from the correct paths of the same problem and from exact arithmetic. Pure.

For one problem, ``support(step)`` is the number of OTHER CORRECT paths that hold the step's key (`data_gen.support`).
With keys ``equations`` an equation is looked up first together with the state it starts from (the equations before
it, in any order), so that right arithmetic at the wrong place is not supported; only where no correct path passes
through that state is the equation looked up alone; prose is looked up by its last number. With keys ``values``, made
for real text, a step is looked up by the new value it arrives at. A step that claims nothing is never unsupported.

Axis letters: G paths of one problem, S steps of one path.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from common.records import IGNORED, LabelledPath, Path, Verdict
from data_gen.step_keys import falsehoods, step_key
from data_gen.support import CLAIMLESS, EquationSupport, Support, SupportPool, ValueSupport

Rule = Literal["forward", "backward"]


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
            go on with: a correct path that hides a wrong step must not vouch for it (keys ``equations`` only).
        keys: what two steps must share: ``equations`` (solutions that are equations alone, as the generator's) or
            ``values`` (prose).
    """

    rule: Rule = "forward"
    sources: tuple[str, ...] = ("frequency", "arithmetic")
    min_support: int = 0
    after_error: Literal["negative", "ignore"] = "negative"
    false_in_correct: Literal["keep", "label", "drop"] = "label"
    min_share: float = 0.34
    keys: Literal["equations", "values"] = "equations"

    def __post_init__(self) -> None:
        unknown = set(self.sources) - {"frequency", "arithmetic"}
        if unknown or not self.sources:
            raise ValueError(f"label sources {self.sources}: wanted 'frequency', 'arithmetic' or both")

    def support_pool(self, problem: str, correct: Sequence[Sequence[str]]) -> SupportPool:
        """The pool that these settings ask for support, from the steps of the correct paths of one problem."""
        return ValueSupport(problem, correct) if self.keys == "values" else EquationSupport(correct)

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
        left_one_out: number of those steps.
    """

    paths: int
    labelled: int
    left_out: Mapping[str, int]
    problems: int
    problems_without_correct: int
    steps: Mapping[str, int]
    coverage: float
    unsupported_in_correct: float
    left_one_out: int

    def to_row(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def merged(parts: Sequence[LabelSummary], judged: int) -> LabelSummary:
    """The summary of a run from those of its parts, in order, no problem being in two of them.

    judged: paths of all parts that `can_be_labelled`.
    """
    labelled, tried = sum(part.labelled for part in parts), sum(part.left_one_out for part in parts)
    sparse = sum(round(part.unsupported_in_correct * part.left_one_out) for part in parts)
    left_out, steps = Counter[str](), Counter[str]()
    for part in parts:
        left_out.update(part.left_out)
        steps.update(part.steps)
    return LabelSummary(
        paths=sum(part.paths for part in parts),
        labelled=labelled,
        left_out=dict(sorted(left_out.items())),
        problems=sum(part.problems for part in parts),
        problems_without_correct=sum(part.problems_without_correct for part in parts),
        steps=dict(steps),
        coverage=labelled / max(judged, 1),
        unsupported_in_correct=sparse / max(tried, 1),
        left_one_out=tried,
    )


def refusal(summary: LabelSummary, settings: LabelSettings, limit: float) -> str | None:
    """Return why support must not label these paths, None when it may.

    Where no oracle exists the pool itself tells how far support can be believed: a step of a correct path that no
    other correct path supports would be called wrong in a wrong path. limit: largest share of such steps, 0..1.
    """
    if "frequency" not in settings.sources or summary.unsupported_in_correct <= limit:
        return None
    return (
        f"support labels refused: {summary.unsupported_in_correct:.1%} of {summary.left_one_out} steps of correct"
        f" paths have no support in another correct path (keys {settings.keys!r}), allowed is {limit:.1%}; sample more"
        " paths a problem, take keys 'values', or label by monte_carlo (docs/labels.md)"
    )


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
        missing = [support.is_missing(settings.min_support, settings.min_share) for support in supports]
        by_rule = first_error_by_rule(missing, settings.rule)
        found += [] if by_rule is None else [by_rule]
    return min(found, default=None)


def labels_from_first_error(n_steps: int, first_error: int | None, after_error: str) -> tuple[int, ...]:
    """Return 1 before the first error e, 0 at e, and behind it 0 (``negative``) or IGNORED (``ignore``)."""
    if first_error is None:
        return (1,) * n_steps
    behind = 0 if after_error == "negative" else IGNORED
    return (1,) * first_error + (0,) + (behind,) * (n_steps - first_error - 1)


def _refuted(steps: Sequence[str], settings: LabelSettings) -> list[bool]:
    is_asked = "arithmetic" in settings.sources
    return falsehoods([step_key(step) for step in steps]) if is_asked else [False] * len(steps)


def can_be_labelled(path: Path) -> bool:
    """True for a path that some source could label: judged CORRECT or WRONG, not cut off (coverage counts these)."""
    return path.verdict in (Verdict.CORRECT, Verdict.WRONG) and not path.is_truncated


def _left_out(path: Path) -> str | None:
    if path.verdict not in (Verdict.CORRECT, Verdict.WRONG):
        return path.verdict.value
    if path.is_truncated:
        return "truncated"
    return None if path.steps else "no_steps"


def label_paths(
    paths: Sequence[Path], settings: LabelSettings | None = None, problems: Mapping[str, str] | None = None
) -> tuple[list[LabelledPath], LabelSummary]:
    """Label the paths of any number of problems.

    A CORRECT path is 1 at every step (see `LabelSettings.false_in_correct` for the one exception); frequency never
    lowers it. A WRONG path is 1 before its first error. Paths that are not judged or cut off, paths of a problem
    without a correct path (when frequency is the only source) and wrong paths in which no error is found are left
    out and counted.

    Args:
        problems: problem id -> text, needed by keys ``values``.

    Returns:
        labelled paths in the order given, and the summary.
    """
    settings = settings or LabelSettings()
    if settings.keys == "values" and problems is None:
        raise ValueError("keys 'values' need the texts of the problems")
    by_problem: dict[str, list[int]] = {}
    for i, path in enumerate(paths):
        by_problem.setdefault(path.problem_id, []).append(i)
    labelled: dict[int, LabelledPath] = {}
    left_out: Counter[str] = Counter()
    sparse: list[bool] = []
    without_correct = 0
    for problem_id, members in by_problem.items():
        usable = []
        for i in members:
            reason = _left_out(paths[i])
            left_out.update([reason] if reason else [])
            usable += [] if reason else [i]
        texts = {i: [step.text for step in paths[i].steps] for i in usable}
        correct = [i for i in usable if paths[i].verdict is Verdict.CORRECT]
        without_correct += not correct
        refuted = {i: _refuted(texts[i], settings) for i in usable}
        clean = {i for i in correct if not any(refuted[i])}
        pool = settings.support_pool((problems or {}).get(problem_id, ""), [texts[i] for i in sorted(clean)])
        for i in usable:
            supports = pool.supports(texts[i], is_own=i in clean)
            if i in clean and len(clean) > 1:
                sparse += [s.key not in CLAIMLESS and s.count <= settings.min_support for s in supports]
            result = _label(paths[i], refuted[i], supports, settings, has_pool=bool(clean))
            if isinstance(result, str):
                left_out[result] += 1
            else:
                labelled[i] = result
    done = [labelled[i] for i in sorted(labelled)]
    steps = Counter("ignored" if label == IGNORED else str(label) for row in done for label in row.labels)
    return done, LabelSummary(
        paths=len(paths),
        labelled=len(done),
        left_out=dict(sorted(left_out.items())),
        problems=len(by_problem),
        problems_without_correct=without_correct,
        steps=dict(steps),
        coverage=len(done) / max(sum(map(can_be_labelled, paths)), 1),
        unsupported_in_correct=sum(sparse) / max(len(sparse), 1),
        left_one_out=len(sparse),
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
        if not has_pool and "frequency" in settings.sources:
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


if __name__ == "__main__":
    from data_gen.rows import label_rows

    raise SystemExit(label_rows())
