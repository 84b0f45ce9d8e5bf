"""Curriculum in numbers: stages, promotion, the problems of each batch, what alarms compare with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from policy_toys import toy_problems
from test_policy_monitors import batch as facts

from common.config import load_config
from common.errors import InputError
from common.runs import stage_config
from policy.arguments import curriculum_plan
from policy.batches import BatchPlan
from policy.curriculum import (
    Progress,
    Promotion,
    StagedPlan,
    after_evaluation,
    split_stages,
    staged_validation,
)
from policy.monitors import Limits, Monitors

MICRO = Path(__file__).parent.parent / "configs" / "micro.yaml"
EASY_HARD = ((0.5, 1.0), (0.0, 0.5))

# ---- stages ----


def test_problems_go_to_the_first_band_that_holds_them_and_the_checked_ones_are_not_trained_on():
    values = [0.9, 0.1, None, 0.5, 1.0, 0.0, 0.45, 0.7]
    ids = [f"p{i}" for i in range(8)]
    easy, hard = split_stages(ids, values, ((0.5, 1.0), (0.1, 0.5)), num_checked=2)
    assert sorted((*easy.train, *easy.checked)) == [0, 3, 4, 7]  # 0.5 lies in both bands and goes to the first
    assert sorted((*hard.train, *hard.checked)) == [1, 6]  # 0.0 lies in none, and no value in none either
    assert len(easy.checked) == len(easy.train) == 2
    assert hard.train == ()
    backwards = split_stages(ids[::-1], values[::-1], ((0.5, 1.0), (0.1, 0.5)), num_checked=2)
    assert {7 - i for i in backwards[0].checked} == set(easy.checked)  # whatever the order


@pytest.mark.parametrize(
    ("progress", "num_batches", "accuracy", "wanted"),
    [
        (Progress(0, 0), 0, 0.9, Progress(0, 0)),  # nothing was trained yet
        (Progress(0, 0), 4, 0.69, Progress(0, 0)),
        (Progress(0, 0), 4, 0.7, Progress(1, 4)),
        (Progress(0, 0), 8, 0.1, Progress(1, 8)),  # 8 batches are the most of stage 1
        (Progress(1, 8), 12, 0.69, Progress(1, 8)),
        (Progress(1, 8), 8, 0.9, Progress(1, 8)),  # one promotion an evaluation
        (Progress(1, 8), 99, 0.69, Progress(1, 8)),  # stage 2 has no limit
        (Progress(1, 8), 12, 0.7, Progress(2, 12)),
        (Progress(2, 12), 99, 1.0, Progress(2, 12)),  # the last one never ends
    ],
)
def test_promotion_in_numbers(progress, num_batches, accuracy, wanted):
    rules = [Promotion(0.7, 8), Promotion(0.7, None), Promotion(0.7, 8)]
    found, reason = after_evaluation(progress, rules, num_batches, accuracy)
    assert found == wanted
    assert (reason is None) == (found == progress)


def test_reasons_say_what_promoted():
    _, by_accuracy = after_evaluation(Progress(0, 0), [Promotion(0.7, 8)] * 2, 4, 0.75)
    assert by_accuracy == (
        "curriculum: stage 1 of 2 ended after 4 batches: validation accuracy 0.750 on its problems reached 0.7"
    )
    _, by_limit = after_evaluation(Progress(0, 2), [Promotion(None, 8)] * 2, 10, 1.0)
    assert by_limit == (
        "curriculum: stage 1 of 2 ended after 8 batches: its 8 batches are over, validation accuracy 1.000 on its"
        " problems"
    )


def staged_plan(count: int = 12, num_checked: int = 2, **changes: Any) -> StagedPlan:
    """Easy and hard of ``toy_problems``: six each, two of them checked, batches of four."""
    problems = toy_problems(count)
    difficulties = [problem.difficulty for problem in problems]
    stages = split_stages([p.id for p in problems], difficulties, EASY_HARD, num_checked)
    settings = {"batch_size": 4, "bands": 1, "seed": 3, "promote_at": 0.7}
    return StagedPlan(stages, difficulties, **(settings | changes))


def test_batches_come_from_the_stage_in_force_whenever_they_were_drawn():
    plan = staged_plan()
    drawn = plan.batch(1)  # as the loader does, before the evaluation that promotes
    assert drawn == [0, 1, 2, 3]
    assert set(plan.rows(0, drawn)) == set(plan.stages[0].train)
    assert plan.after_evaluation(1, {"stage_accuracy": 0.8}) is not None
    assert set(plan.rows(1, drawn)) == set(plan.stages[1].train)
    assert plan.rows(1, drawn[2:]) == plan.rows(1, drawn)[2:]  # a rank has its part of the batch
    assert plan.facts() == {"curriculum/stage": 2.0}
    other = staged_plan()
    other.load_state_dict(json.loads(json.dumps(plan.state_dict())))
    assert other.rows(2, drawn) == plan.rows(2, drawn)
    assert other.progress == Progress(1, 1)


def test_a_pass_of_a_stage_begins_with_the_stage():
    plan = staged_plan(24, num_checked=4, max_epochs=2)  # 12 problems a stage, 8 trained on: 2 batches a pass
    assert [rule.max_batches for rule in plan.rules] == [4, 4]
    plan.load_state_dict({"stage": 1, "entered": 3})
    first, second = plan.rows(3, plan.batch(3)), plan.rows(4, plan.batch(4))
    assert sorted(first + second) == list(plan.stages[1].train)
    assert [rule.max_batches for rule in staged_plan(24, 4, max_epochs=2, max_batches=3).rules] == [3, 3]


def test_a_checkpoint_without_its_curriculum_is_refused():
    for state in ({}, {"stage": 2, "entered": 0}):
        with pytest.raises(ValueError, match="want a stage below 2"):
            staged_plan().load_state_dict(state)
    BatchPlan([None] * 4, 4, 1, 0).load_state_dict({})


def test_validation_measures_the_stage_in_force():
    plan = staged_plan()
    measures = [lambda _, value=value: {"accuracy": value, "steps": 1.0} for value in (0.1, 0.2)]
    measure = staged_validation(plan, lambda policy: {"accuracy": 0.9, "steps": 3.0}, measures)
    assert measure(None) == {"accuracy": 0.9, "steps": 3.0, "stage_accuracy": 0.1, "stage": 1.0}
    plan.after_evaluation(1, {"stage_accuracy": 1.0})
    assert measure(None)["stage_accuracy"] == 0.2


def test_plan_of_a_configuration_by_level_and_by_pass_rate():
    levelled = [dataclasses.replace(p, level=k % 3 + 1) for k, p in enumerate(toy_problems(30))]
    config = load_config(
        MICRO, ["curriculum.by=level", "curriculum.stages=[[1,1],[2,3]]", "curriculum.checked=3", "ppo.problems=2"]
    )
    plan = curriculum_plan(config, levelled)
    assert plan is not None
    assert [len(stage.train) for stage in plan.stages] == [7, 17]
    assert {levelled[i].level for i in plan.stages[0].train} == {1}
    assert curriculum_plan(load_config(MICRO), levelled) is None
    by_rate = load_config(MICRO, ["curriculum.by=pass_rate", "curriculum.checked=8", "ppo.problems=2"])
    with pytest.raises(InputError, match=r"stage 2: 9 problems have a pass_rate in \[0.3, 0.6\]; want .* = 12"):
        curriculum_plan(by_rate, toy_problems(30))


def test_a_configuration_without_a_curriculum_is_the_one_it_was():
    flat = stage_config(load_config(MICRO), "ppo")
    assert not [key for key in flat if key.startswith(("sft.", "curriculum."))]
    assert "curriculum.stages" in stage_config(load_config(MICRO, ["curriculum.by=level"]), "ppo")
    with pytest.raises(InputError, match="no stage would end"):
        load_config(MICRO, ["curriculum.by=level", "curriculum.promote_at=null"])
    with pytest.raises(InputError, match="must not be above the second"):
        load_config(MICRO, ["curriculum.stages=[[0.6,0.3]]"])


# ---- monitors ----


def test_rules_compare_batches_of_one_stage():
    """Harder problems have longer paths that repeat themselves more: that is no drift of the policy."""

    def run(promoted: bool) -> Monitors:
        monitors = Monitors(Limits(), 0.05)
        for batch in range(10):
            if batch == 5 and promoted:
                monitors.begin_stage()
            hard = batch >= 5
            monitors.observe_batch(facts(mean_steps=6.0 if hard else 2.0, repeated_ngrams=0.2 if hard else 0.01))
        return monitors

    assert run(promoted=False).process_factor < 1
    assert "repeated n-grams" in (run(promoted=False).stopped_by or "")
    assert (run(promoted=True).process_factor, run(promoted=True).stopped_by) == (1.0, None)
    state = run(promoted=True).state_dict()
    again = Monitors(Limits(), 0.05)
    again.load_state_dict(json.loads(json.dumps(state)))
    assert again.state_dict() == state
    assert state["stage_start"] == 5
