"""The supervised start: which rows it learns from, what its loss counts, and the way from it through ppo's stages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import load_peft_weights
from policy_toys import toy_problems, toy_tokenizer
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback

from common.adapters import FOLDER, NAME
from common.cli import seed_everything
from common.config import Config, load_config
from common.errors import InputError
from common.models import load_policy, load_tokenizer, weights_hash
from common.prompts import PromptTemplate
from common.records import FinishReason
from common.runs import Run
from data_gen.__main__ import data_stage
from data_gen.base_rows import encode
from data_gen.solutions import (
    Solution,
    TrainingRow,
    read_solutions,
    reference_solutions,
    right_solutions,
    training_rows,
)
from data_gen.steps import build_path
from data_gen.synthetic import generate, solve
from pipeline.stages import stages_of_round
from policy.checkpoints import last_complete_checkpoint, policy_state
from policy.sft import build_trainer, sft_stage
from policy.train import train_stage

PROJECT = Path(__file__).parent.parent
MICRO = PROJECT / "configs" / "micro.yaml"
TOY_PROMPT = lambda text: toy_tokenizer()(text + "\n", add_special_tokens=False)["input_ids"]  # noqa: E731

# ---- rows ----


def test_rows_of_reference_solutions_are_those_the_embedded_base_was_trained_on():
    problems = generate("train", 3, 6, levels=(2, 3))
    tokenizer = load_tokenizer("data_gen/base_model")
    template = PromptTemplate()
    rows, left_out = training_rows(
        reference_solutions(problems), tokenizer, lambda text: template.ids(text, tokenizer), max_length=200
    )
    wanted = encode(tokenizer, [(problem.text, solve(problem.text)) for problem in problems])
    assert [[*row.prompt_ids, *row.solution_ids] for row in rows] == [row.ids for row in wanted]
    assert [len(row.prompt_ids) for row in rows] == [row.prompt_length for row in wanted]
    assert not left_out


def test_what_cannot_teach_is_left_out_and_counted():
    end = toy_tokenizer().eos_token_id
    solutions = [
        Solution("1+1=?", "2", "1+1=2\nAnswer: 2"),
        Solution("2+2=?", "4", "2+2=5\nAnswer: 5"),
        Solution("3+3=?", None, "nobody knows"),  # no gold answer: taken as it is
        Solution("4+4=?", "8", "4+4=8\n" * 9 + "Answer: 8"),
        Solution("5 +  5=?", "10", "5+5=10\nAnswer: 10"),
    ]
    rows, left_out = training_rows(solutions, toy_tokenizer(), TOY_PROMPT, max_length=40, held_out=["5 + 5=?"])
    assert [row.prompt_ids for row in rows] == [tuple(TOY_PROMPT(text)) for text in ("1+1=?", "3+3=?")]
    assert all(row.solution_ids[-1] == end and row.solution_ids.count(end) == 1 for row in rows)
    assert left_out == {
        "answer not found right by the grader": 1,
        "longer than sft.max_length": 1,
        "in validation or test": 1,
    }
    with pytest.raises(InputError, match=r"none of 1 solutions can be trained on: .*'answer not found right"):
        training_rows(solutions[1:2], toy_tokenizer(), TOY_PROMPT, max_length=40)


def toy_path(problem: Any, text: str, index: int, reason: FinishReason = FinishReason.STOP) -> Any:
    ids = toy_tokenizer()(text, add_special_tokens=False)["input_ids"] + [1]
    return build_path(problem, ids, reason, toy_tokenizer(), seed=0, index=index)


def test_right_paths_are_different_ended_and_at_most_so_many_a_problem():
    first, second = toy_problems(2)
    paths = [
        toy_path(first, "0+0=0\nAnswer: 0", 0),
        toy_path(first, "0+0=0\nAnswer: 0", 1),  # the same again
        toy_path(first, "0*7=0\nAnswer: 0", 2),
        toy_path(first, "7-7=0\nAnswer: 0", 3),
        toy_path(second, "1+7=9\nAnswer: 9", 0),  # wrong
        toy_path(second, "Answer: 8", 1),  # no step
        toy_path(second, "1+7=8\nAnswer: 8", 2, FinishReason.LENGTH),  # cut
        toy_path(second, "7+1=8\nAnswer: 8", 3),
    ]
    every = right_solutions(paths, [first, second], most=9)
    assert sorted(one.text for one in every) == sorted(paths[k].text for k in (0, 2, 3, 7))
    few = right_solutions(paths, [first, second], most=2)
    assert [one.problem for one in few].count(first.text) == 2
    rows, _ = training_rows(few, toy_tokenizer(), TOY_PROMPT, max_length=99)
    assert {row.solution_ids for row in rows} <= {path.token_ids for path in paths}  # as sampled, no end token twice


def test_a_file_of_solutions(tmp_path):
    rows = [
        {"question": "1+1=?", "answer": 2, "solution": "1+1=2\nAnswer: 2"},
        {"problem": "2+2=?", "solution": "2+2=4\nAnswer: 4"},
        {"problem": "2+2=?", "solution": "2+2=4\nAnswer: 4"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = read_solutions(file, 9)
    assert {(one.problem, one.answer) for one in found} == {("1+1=?", "2"), ("2+2=?", None)}
    assert read_solutions(file, 1) == found[:1]
    file.write_text(json.dumps({"problem": "1+1=?", "answer": "2"}))
    with pytest.raises(InputError, match=r"rows.jsonl, row 1: 'solution' \(or .*\) is None, want text"):
        read_solutions(file, 9)


# ---- configuration and order of the stages ----


def test_stages_of_a_round():
    def order(source: str, index: int = 0) -> list[str]:
        return stages_of_round(load_config(MICRO, [f"sft.source={source}"]), index)

    assert order("none") == ["data", "prm", "ppo", "eval"]
    assert order("solutions") == ["sft", "data", "prm", "ppo", "eval"]
    assert order("right_paths") == ["data", "sft", "prm", "ppo", "eval"]
    assert order("solutions", 1) == ["data", "prm", "ppo", "eval"]


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"want sft\.source=solutions or right_paths"):
        sft_stage(load_config(MICRO), Run(tmp_path))
    on = load_config(MICRO, ["sft.source=right_paths"])
    with pytest.raises(InputError, match="belongs to round 0"):
        sft_stage(on, Run(tmp_path, 1))
    with pytest.raises(InputError, match="run: make data"):
        sft_stage(on, Run(tmp_path))
    with pytest.raises(InputError, match="run: make sft"):
        Run(tmp_path).start_model(on)
    assert Run(tmp_path).start_model(on, before_sft=True) == Run(tmp_path).start_model(load_config(MICRO))
    with pytest.raises(InputError, match="no multiple of micro_batch 3"):
        load_config(MICRO, ["sft.batch=8", "sft.micro_batch=3"])
    assert not list(tmp_path.iterdir())


# ---- training ----


def configured(*overrides: str) -> Config:
    """The embedded base with adapters, a supervised start, two stages of ppo by level, no PRM."""
    settings = {
        "base.threads": 1,
        "lora.rank": 2,
        "sft.source": "solutions",
        "sft.problems": 16,
        "sft.batch": 8,
        "sft.learning_rate": 1e-3,
        "data.pool": 28,
        "data.validation": 4,
        "data.test": 4,
        "data.paths": 4,
        "data.max_new_tokens": 48,
        "ppo.reward": "signals",
        "ppo.problems": 3,
        "ppo.micro_batch": 6,
        "ppo.epochs": 1,
        "ppo.eval_every": 1,
        "ppo.difficulty_bands": 1,
        "curriculum.by": "level",
        "curriculum.stages": "[[2,2],[3,3]]",
        "curriculum.checked": 2,
        "curriculum.promote_at": "null",
        "curriculum.max_batches": 2,
    }
    return load_config(MICRO, [*(f"{key}={value}" for key, value in settings.items()), *overrides])


def test_loss_is_the_mean_over_the_solution_s_tokens(tmp_path):
    config = configured("lora.rank=0")
    tokenizer = load_tokenizer(config.base.model)
    rows = [TrainingRow((5, 6, 7), (8, 9, 10, 1)), TrainingRow((5, 6), (11, 1))]
    trainer = build_trainer(config, rows, tokenizer, tmp_path)
    batch = trainer.data_collator([trainer.train_dataset[k] for k in range(2)])
    loss = trainer.compute_loss(trainer.model, batch)
    model = load_policy(config.base.model)
    with torch.no_grad():
        parts = []
        for row in rows:
            ids = torch.tensor([[*row.prompt_ids, *row.solution_ids]])
            start = len(row.prompt_ids)
            logits = model(ids).logits[0, start - 1 : -1]
            parts.append(cross_entropy(logits, torch.tensor(row.solution_ids), reduction="sum"))
    assert float(loss) == pytest.approx(float(sum(parts)) / 6, rel=1e-5)


class Killed(BaseException):
    """Not an error: nothing in the stage may catch it."""


class KillAt(TrainerCallback):
    def __init__(self, update: int) -> None:
        self.update = update

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.update:
            raise Killed


def test_a_killed_start_ends_as_an_unbroken_one_and_right_paths_are_a_source(tmp_path):
    config = configured("lora.rank=0", "sft.source=right_paths", "curriculum.by=none", "ppo.batches=1")
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    seed_everything(config)
    data_stage(config, whole)
    shutil.copytree(whole.root, cut.root)
    sft_stage(config, whole)
    updates = whole.stage("sft").metrics()[-1]["step"]
    assert updates >= 4
    with pytest.raises(Killed):
        sft_stage(config, cut, KillAt(updates - 1))
    torch.manual_seed(99)
    sft_stage(config, cut)
    assert f"continues after update {updates // 2}" in cut.stage("sft").file("continued.log").read_text()
    saved = [load_policy(str(run.stage("sft").file("policy"))) for run in (whole, cut)]
    assert weights_hash(saved[0]) == weights_hash(saved[1]) != weights_hash(load_policy(config.base.model))
    assert whole.stage("sft").metrics() == cut.stage("sft").metrics()
    summaries = [run.stage("sft").summary for run in (whole, cut)]
    assert summaries[0]["after"] == summaries[1]["after"]
    assert not whole.stage("sft").file("checkpoints").exists()
    assert whole.start_model(config) == str(whole.stage("sft").file("policy"))


class Notes(TrainerCallback):
    """What ppo starts from: the trained adapter, and the frozen copy of it that is the KL reference."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.start = {name: weight.detach().clone() for name, weight in model.named_parameters() if ".lora_" in name}


@pytest.fixture(scope="module")
def through_ppo(tmp_path_factory):
    """sft with adapters -> data -> ppo in two stages; the configuration, the run and ppo's notes."""
    root = tmp_path_factory.mktemp("runs") / "staged"
    config, run, notes = configured(), Run(root), Notes()
    seed_everything(config)
    sft_stage(config, run)
    data_stage(config, run)
    train_stage(config, run, notes)
    return config, run, notes


def test_ppo_starts_from_the_start_s_adapter_and_holds_it_as_reference(through_ppo):
    config, run, notes = through_ppo
    saved = load_peft_weights(str(run.stage("sft").file("policy") / FOLDER), device="cpu")
    assert any("lora_B" in name and bool((weight != 0).any()) for name, weight in saved.items())
    for name, weight in saved.items():
        trained = name.replace(".weight", f".{NAME}.weight")
        assert torch.equal(notes.start[trained], weight), name
    rows = run.stage("ppo").metrics()
    first = next(row for row in rows if "kl/base" in row)
    assert first["kl/base"] != 0  # the base model is another one than the reference
    ratio = next(row for row in rows if "update/max_ratio_error" in row)
    assert ratio["kl/reference"] < 1e-2
    assert run.start_model(config) == str(run.stage("sft").file("policy"))
    assert run.stage("sft").summary["before"].keys() == {"accuracy", "greedy", "sampled", "steps"}


def test_ppo_went_through_its_stages(through_ppo):
    _, run, _ = through_ppo
    rows = run.stage("ppo").metrics()
    assert [row["curriculum/stage"] for row in rows if "curriculum/stage" in row] == [1.0, 1.0, 2.0, 2.0]
    evaluated = [(row["step"], row["eval_stage"]) for row in rows if "eval_stage_accuracy" in row]
    assert evaluated == [(0, 1.0), (2, 1.0), (4, 1.0), (6, 2.0), (8, 2.0)]
    promotions = [(row["step"], row["alarms"]) for row in rows if "curriculum: " in str(row.get("alarms"))]
    assert len(promotions) == 1
    assert promotions[0][0] == 4
    assert promotions[0][1].startswith("curriculum: stage 1 of 2 ended after 2 batches: its 2 batches are over")


KILL = """
import os, signal, sys
from transformers import TrainerCallback
from common.cli import seed_everything
from common.runs import Run
from policy.train import train_stage
sys.path.insert(0, "tests")
from test_sft import configured

class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 7:
            os.kill(os.getpid(), signal.SIGKILL)

config = configured()
seed_everything(config)
train_stage(config, Run(__import__("pathlib").Path(sys.argv[1])), Kill())
"""


@pytest.mark.slow
def test_sigkill_in_the_second_stage_and_a_resume_end_as_the_unbroken_run(through_ppo, tmp_path):
    config, whole, _ = through_ppo
    cut = Run(tmp_path / "cut")
    for stage in ("sft", "sample", "label"):
        shutil.copytree(whole.stage(stage).path, cut.stage(stage).path)
    killed = subprocess.run([sys.executable, "-c", KILL, str(cut.root)], cwd=PROJECT, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    checkpoint = last_complete_checkpoint(cut.stage("ppo").file("checkpoints"))
    assert policy_state(checkpoint)["plan"] == {"stage": 1, "entered": 2}
    seed_everything(config)
    train_stage(config, cut)
    assert "continues after update 6 of 8" in cut.stage("ppo").file("continued.log").read_text()
    saved = [load_policy(str(run.stage("ppo").file("policy"))) for run in (whole, cut)]
    assert weights_hash(saved[0]) == weights_hash(saved[1])
    logs = [
        [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in run.stage("ppo").metrics()]
        for run in (whole, cut)
    ]
    assert logs[0] == logs[1]
