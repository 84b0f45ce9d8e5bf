"""Tiny hand-made records for the tests of ``eval``."""

from __future__ import annotations

from collections.abc import Sequence

from common.records import FinishReason, Path, Problem, Step, Verdict, content_id
from eval.collect import EvalSettings, ModelPools, collect
from eval.prm_quality import KnownSteps

SETTINGS = EvalSettings(resamples=200)


def problem(number: int, topic: str = "chain", level: int | None = 3) -> Problem:
    return Problem.create(f"problem {number}", "7", source="test", topic=topic, level=level)


def path(
    answer: str | None = "7",
    *,
    steps: Sequence[str] = ("a", "b"),
    tokens: Sequence[int] = (1, 2, 3, 4, 5),
    verdict: Verdict | None = None,
    cut: bool = False,
    of: Problem | None = None,
    name: object = 0,
) -> Path:
    """A path whose verdict follows from the answer: "7" is right, None is unparsed."""
    if verdict is None:
        verdict = Verdict.UNPARSED if answer is None else Verdict.CORRECT if answer == "7" else Verdict.WRONG
    cuts, position = [], 0
    for text in steps:
        cuts.append(Step(text, position, position + len(text)))
        position += len(text) + 1
    return Path(
        problem_id=of.id if of else "p",
        path_id=content_id(of.id if of else "p", name),
        text="\n".join([*steps, f"Answer: {answer}"]),
        token_ids=tuple(tokens),
        steps=tuple(cuts),
        answer=answer,
        verdict=verdict,
        finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
    )


def model(
    name: str,
    problems: Sequence[Problem],
    share_right: float,
    *,
    settings: EvalSettings = SETTINGS,
    with_prm: bool = True,
    with_oracle: bool = True,
) -> ModelPools:
    """A model that answers "7" in the first ``share_right`` of its paths and "8" in the others, with one wrong step."""

    def sample(asked: Sequence[Problem], n: int, temperature: float, seed: int) -> list[list[Path]]:
        count = round(share_right * n)
        return [[path("7" if g < count else "8", of=p, name=(name, g)) for g in range(n)] for p in asked]

    def score(asked: Sequence[Problem], paths: Sequence[Path]) -> list[list[float]]:
        return [[0.9, 0.8] if each.answer == "7" else [0.9, 0.1] for each in paths]

    def judge(asked: Problem, each: Path) -> KnownSteps:
        return KnownSteps(None) if each.answer == "7" else KnownSteps(1, habit="sign_slip")

    return collect(
        name,
        problems,
        problems[:2],
        sample,
        settings,
        score=score if with_prm else None,
        judge=judge if with_oracle else None,
    )
