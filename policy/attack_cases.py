"""The paths of an attack measurement: honest ones of a run, and each attacked as a sampler would have returned it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from common.config import Config
from common.errors import InputError
from common.prompts import PromptTemplate
from common.records import FinishReason, LabelledPath, Path, Problem, Verdict
from common.runs import Run, read_records
from data_gen.steps import build_paths
from policy.attack_rewards import judged, path_reward
from policy.options import PolicySettings
from policy.rewards import theorem_names, typical_steps
from policy.rollouts import Rollout, Score, score_rollout
from prm.attacks import Attack, HonestPath, attacked, honest_path, labelled_attack
from prm.training_set import stable_hash


@dataclasses.dataclass(frozen=True)
class Case:
    """One problem with the honest path that is attacked.

    Attributes:
        problem: the problem.
        prompt_ids: its prompt.
        path: the first sampled path with a right answer behind its steps.
        honest: what the attacks need of it.
        sampled: all sampled paths of the problem.
    """

    problem: Problem
    prompt_ids: tuple[int, ...]
    path: Path
    honest: HonestPath
    sampled: tuple[Path, ...]


@dataclasses.dataclass(frozen=True)
class Attacked:
    """One attacked path.

    Attributes:
        case: index of its case. family: name of the attack.
        attack: text and bad spans. path: the graded path.
    """

    case: int
    family: str
    attack: Attack
    path: Path


def load_cases(config: Config, run: Run, tokenizer: Any) -> list[Case]:
    """Return the run's cases in the order of the hash that chooses held-out problems: those come first.

    Raises:
        InputError: no sampled path of the round has a right answer behind its steps.
    """
    stage = run.require("sample")
    problems = {p.id: p for p in read_records(stage.file("problems_train.jsonl"), Problem.from_row)}
    groups: dict[str, list[Path]] = {}
    for path in read_records(stage.file("paths.jsonl"), Path.from_row):
        groups.setdefault(path.problem_id, []).append(path)
    template = PromptTemplate.from_config(config.base)
    cases = []
    for problem_id in sorted(groups, key=lambda one: stable_hash(config.seed, one)):
        problem, paths = problems[problem_id], groups[problem_id]
        right = [path for path in paths if path.verdict is Verdict.CORRECT and not path.is_truncated]
        found = [(path, honest) for path in right if (honest := honest_path(problem.text, path)) is not None]
        if found:
            ids = template.ids(problem.text, tokenizer)
            cases.append(Case(problem, tuple(ids), *found[0], tuple(paths)))
    if not cases:
        raise InputError(f"{stage.path}: none of {len(groups)} problems has a right path with steps before its answer")
    return cases


def build_attacked(
    cases: Sequence[Case], families: Sequence[str], tokenizer: Any, config: Config
) -> tuple[list[Attacked], dict[str, int]]:
    """Attack each case with each family; return the graded paths, and how often a family found nothing to attack.

    The text becomes token ids with an end token, cut at the length limit, and then goes the way of a sampled completion
    (``data_gen.steps.build_paths``).
    """
    made: list[tuple[int, str, Attack]] = []
    nothing = dict.fromkeys(families, 0)
    for family in families:
        for index, case in enumerate(cases):
            attack = attacked(case.honest, family, config.seed)
            if attack is None:
                nothing[family] += 1
            else:
                made.append((index, family, attack))
    paths = build_paths(
        [cases[index].problem for index, _, _ in made],
        [completion(attack.text, tokenizer, config.data.max_new_tokens) for _, _, attack in made],
        tokenizer,
        seed=config.seed,
        indices=list(range(len(made))),
        stop=config.base.stop,
    )
    return [Attacked(*one, path) for one, path in zip(made, paths, strict=True)], nothing


def completion(text: str, tokenizer: Any, limit: int) -> tuple[list[int], FinishReason]:
    """Return the ids a sampler would have returned for a text: end token last, or cut at ``limit`` tokens."""
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return (ids, FinishReason.STOP) if len(ids) <= limit else (ids[:limit], FinishReason.LENGTH)


def attack_rollouts(
    cases: Sequence[Case], found: Sequence[Attacked], settings: PolicySettings, score: Score
) -> tuple[Rollout, Rollout]:
    """Return two scored rollouts: the honest paths and behind them the attacked ones; and all sampled paths.

    Penalties know of a problem's sampled paths what they would know in its group: the typical number of steps, and the
    theorems of right paths.
    """
    typical = [typical_steps(case.sampled, case.problem.level) for case in cases]
    known = {
        name
        for case in cases
        for path in case.sampled
        if path.verdict is Verdict.CORRECT
        for name in theorem_names(path.text)
    }
    shown = [*((index, case.path) for index, case in enumerate(cases)), *((one.case, one.path) for one in found)]
    drawn = [(index, path) for index, case in enumerate(cases) for path in case.sampled]
    rollouts = []
    for rows in (shown, drawn):
        rewards = [path_reward(path, settings, typical=typical[k], known_theorems=known) for k, path in rows]
        prompts = [cases[k].prompt_ids for k, _ in rows]
        rollout = judged([cases[k].problem for k, _ in rows], prompts, [path for _, path in rows], rewards)
        score_rollout(rollout, score)
        rollouts.append(rollout)
    return rollouts[0], rollouts[1]


def labelled_attacks(found: Sequence[Attacked]) -> list[LabelledPath]:
    """Return the attacked paths that have a step with their labels, for a refit of the PRM."""
    return [labelled_attack(one.path, one.attack, one.family) for one in found if one.path.steps]
