"""The fit: learns, keeps its parts apart, resumes exactly, and does not depend on how a window is cut."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from prm_support import tiny_policy, toy_inputs
from transformers import TrainerCallback

from common.errors import InputError, RunError
from common.models import first_nonfinite, weights_hash
from prm.inputs import PRMInput, collate
from prm.model import build_prm, head_parameters, policy_lm_head
from prm.objective import right_step_loss, token_logprobs
from prm.score import score_paths
from prm.train import FitSettings, fit_prm, newest_checkpoint, split_by_problem
from prm.training_set import stable_hash

QUICK = FitSettings(
    head_epochs=1, epochs=2, batch_paths=16, learning_rate=1e-3, warmup=0.0, lm_weight=0.5, steps_after_error=1
)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tiny_policy(tmp_path / "policy", vocab=40, hidden=64)


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_equal_weights(ours: torch.nn.Module, theirs: torch.nn.Module, tolerance: float = 0.0) -> None:
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=0, atol=tolerance, msg=name)


def test_overfits_64_paths(policy: Path, tmp_path: Path) -> None:
    inputs = toy_inputs(64, steps=3)
    settings = FitSettings(head_epochs=1, epochs=32, batch_paths=8, learning_rate=3e-3, select_by="loss")
    _, report = fit_prm(build_prm(policy), inputs, inputs, settings, tmp_path / "fit")
    assert report.quality["before"].first_error.f1 < 0.6
    assert report.quality["calibrated"].first_error.f1 > 0.95
    assert report.quality["calibrated"].brier < report.quality["before"].brier / 4


def test_head_stage_leaves_the_backbone_as_it_was(policy: Path, tmp_path: Path) -> None:
    model = build_prm(policy)
    before = weights(model)
    head = set(head_parameters(model))
    settings = dataclasses.replace(QUICK, epochs=0, head_learning_rate=1e-2)
    fitted, report = fit_prm(model, toy_inputs(64), toy_inputs(16, seed=1), settings, tmp_path / "fit")
    changed = {name for name, tensor in fitted.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == head
    assert set(report.quality) == {"before", "head", "calibrated"}
    assert report.quality["head"].loss < report.quality["before"].loss


def test_second_stage_trains_the_backbone(policy: Path, tmp_path: Path) -> None:
    model = build_prm(policy)
    before = weights(model)
    fitted, report = fit_prm(model, toy_inputs(64), toy_inputs(16, seed=1), QUICK, tmp_path / "fit")
    assert not torch.equal(fitted.base_model.layers[0].mlp.up_proj.weight, before["model.layers.0.mlp.up_proj.weight"])
    assert set(report.quality) == {"before", "head", "all", "calibrated"}
    assert all(weight.requires_grad for weight in fitted.base_model.parameters())
    assert torch.equal(fitted.lm_head.weight, before["lm_head.weight"])
    assert {row["part"] for row in report.history} == {"head", "all"}


def test_accumulation_changes_nothing(policy: Path, tmp_path: Path) -> None:
    inputs, held_out = toy_inputs(70), toy_inputs(16, seed=1)
    fitted = []
    for batch, accumulate in ((16, 1), (4, 4)):
        settings = dataclasses.replace(QUICK, batch_paths=batch, accumulate=accumulate, weight_decay=0.0)
        model, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / f"fit-{accumulate}")
        fitted.append(model)
    assert_equal_weights(*fitted, tolerance=2e-5)
    assert weights_hash(build_prm(policy)) != weights_hash(fitted[0])


class StopAt(TrainerCallback):
    """Dies at an update, as a kill would."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_step_end(self, args, state, control, **kwargs):
        if args.output_dir.endswith("all") and state.global_step == self.update:
            raise KeyboardInterrupt


def test_resume_ends_with_the_weights_of_a_straight_fit(policy: Path, tmp_path: Path) -> None:
    inputs, held_out = toy_inputs(64), toy_inputs(16, seed=1)
    settings = dataclasses.replace(QUICK, epochs=3)
    straight, report = fit_prm(build_prm(policy, dropout=0.1), inputs, held_out, settings, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fit_prm(build_prm(policy, dropout=0.1), inputs, held_out, settings, tmp_path / "cut", callbacks=[StopAt(10)])
    assert newest_checkpoint(tmp_path / "cut" / "all") is not None
    resumed, again = fit_prm(build_prm(policy, dropout=0.1), inputs, held_out, settings, tmp_path / "cut")
    assert weights_hash(resumed) == weights_hash(straight)
    assert again.quality == report.quality
    assert again.history == report.history
    assert again.calibration == report.calibration
    finished, third = fit_prm(build_prm(policy, dropout=0.1), inputs, held_out, settings, tmp_path / "cut")
    assert weights_hash(finished) == weights_hash(straight)
    assert third.quality == report.quality


def test_damaged_checkpoint_and_weights_are_told_and_the_fit_ends_as_a_straight_one(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs, held_out = toy_inputs(32), toy_inputs(16, seed=1)
    settings = dataclasses.replace(QUICK, head_epochs=0, epochs=3)
    straight, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", callbacks=[StopAt(5)])
    newest = tmp_path / "cut" / "all" / "checkpoint-4"
    assert newest_checkpoint(tmp_path / "cut" / "all") == str(newest)
    (newest / "optimizer.pt").write_bytes((newest / "optimizer.pt").read_bytes()[:-50])
    assert newest_checkpoint(tmp_path / "cut" / "all") == str(tmp_path / "cut" / "all" / "checkpoint-2")
    resumed, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut")
    assert "checkpoint-4 is passed over: optimizer.pt is not as it was written" in capsys.readouterr().out
    assert weights_hash(resumed) == weights_hash(straight)
    finished = tmp_path / "cut" / "all" / "weights.pt"
    finished.write_bytes(finished.read_bytes()[:-50])
    again, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut")
    assert "is not as it was written; part 'all' of the fit is trained again" in capsys.readouterr().out
    assert weights_hash(again) == weights_hash(straight)


def test_adapters_start_the_same_when_the_head_is_read_back(policy: Path, tmp_path: Path) -> None:
    inputs, held_out = toy_inputs(32), toy_inputs(16, seed=1)
    settings = dataclasses.replace(QUICK, lora_rank=2)
    straight, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", callbacks=[StopAt(1)])
    torch.rand(7)  # another process has another random state
    said: list[str] = []
    resumed, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", say=said.append)
    assert weights_hash(resumed) == weights_hash(straight)
    assert said == [f"part 'head' of the fit is finished; its weights are read from {tmp_path}/cut/head/weights.pt"]


def test_patience_is_counted_on_after_a_kill(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the epoch after the first flat one, and again when patience had run out but nothing was written."""
    inputs, held_out = toy_inputs(32), toy_inputs(16, seed=1)
    settings = dataclasses.replace(QUICK, head_epochs=0, epochs=6, patience=2, learning_rate=0.0)
    straight, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "straight")
    history = json.loads((tmp_path / "straight" / "all" / "stage.json").read_text())["history"]
    assert [row["step"] for row in history if "eval_loss" in row] == [2, 4, 6]  # the first one, and two no better
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", callbacks=[StopAt(5)])
    with monkeypatch.context() as patch:
        patch.setattr("prm.train.first_nonfinite", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", say=said.append)
    resumed, _ = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", say=said.append)
    resumed_history = json.loads((tmp_path / "cut" / "all" / "stage.json").read_text())["history"]
    assert [row["step"] for row in resumed_history if "eval_loss" in row] == [2, 4, 6]
    assert said == ["part 'all' of the fit continues after update 4", "part 'all' of the fit continues after update 6"]
    assert weights_hash(resumed) == weights_hash(straight)


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_a_part_killed_behind_its_last_update_inside_an_epoch_is_not_trained_on(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora_rank: int
) -> None:
    inputs, held_out = toy_inputs(32), toy_inputs(16, seed=1)  # two updates an epoch
    settings = dataclasses.replace(QUICK, head_epochs=0.5, epochs=1.5, lora_rank=lora_rank)
    straight, report = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "straight")
    assert [row["step"] for row in report.history if "eval_loss" in row] == [1, 2, 3]
    said: list[str] = []
    for parts_written in (0, 1):
        ends = itertools.count()

        def dies(parameters: Any, ends: Any = ends, parts_written: int = parts_written) -> str | None:
            if next(ends) >= parts_written:
                raise KeyboardInterrupt
            return first_nonfinite(parameters)

        with monkeypatch.context() as patch:
            patch.setattr("prm.train.first_nonfinite", dies)
            with pytest.raises(KeyboardInterrupt):
                fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", say=said.append)
    resumed, again = fit_prm(build_prm(policy), inputs, held_out, settings, tmp_path / "cut", say=said.append)
    assert [line.split(";")[0] for line in said] == [
        "part 'head' of the fit continues after update 1",
        "part 'head' of the fit is finished",
        "part 'all' of the fit continues after update 3",
    ]
    assert again.history == report.history
    assert weights_hash(resumed) == weights_hash(straight)


def test_a_checkpoint_cut_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    for step, text in ((4, "{}"), (8, '{"cut'), (12, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if text is not None:
            (folder / "trainer_state.json").write_text(text)
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")
    shutil.rmtree(tmp_path / "checkpoint-4")
    assert newest_checkpoint(tmp_path) is None


def test_the_best_epoch_is_kept(policy: Path, tmp_path: Path) -> None:
    settings = dataclasses.replace(QUICK, epochs=6, learning_rate=3e-3, schedule="constant", select_by="loss")
    held_out = toy_inputs(32, seed=1)
    _, report = fit_prm(build_prm(policy), toy_inputs(64), held_out, settings, tmp_path / "fit")
    losses = [row["eval_loss"] for row in report.history if row["part"] == "all" and "eval_loss" in row]
    assert len(losses) == 6
    assert report.quality["all"].loss == pytest.approx(min(losses))


class Broken(TrainerCallback):
    """Writes NaN into one row of a weight after the second update."""

    def __init__(self, name: str, row: int) -> None:
        self.name, self.row = name, row

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == 2:
            model.get_parameter(self.name).data[self.row] = torch.nan


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("score.weight", 0, "step logits are not finite"),
        ("model.embed_tokens.weight", 39, "ended with a non-finite weight model.embed_tokens.weight"),  # token not used
    ],
)
def test_fit_with_a_nan_weight_ends_and_gives_no_prm(policy: Path, tmp_path: Path, name: str, row: int, message: str):
    settings = dataclasses.replace(QUICK, epochs=0)
    with pytest.raises(RunError, match=message):
        fit_prm(
            build_prm(policy),
            toy_inputs(64),
            toy_inputs(16, seed=1),
            settings,
            tmp_path / "fit",
            callbacks=[Broken(name, row)],
        )
    assert not list((tmp_path / "fit").rglob("weights.pt"))


def test_fit_of_a_policy_with_nan_weights_does_not_begin(policy: Path, tmp_path: Path) -> None:
    model = build_prm(policy)
    model.get_parameter("score.weight").data.fill_(torch.nan)
    with pytest.raises(RunError, match="labelled steps has a finite score"):
        fit_prm(model, toy_inputs(8), toy_inputs(8, seed=1), QUICK, tmp_path / "fit")


def test_lora_fit_gives_a_plain_model(policy: Path, tmp_path: Path) -> None:
    model = build_prm(policy)
    names = set(model.state_dict())
    inputs = toy_inputs(64)
    settings = dataclasses.replace(QUICK, lora_rank=4, learning_rate=3e-3, select_by="loss")
    fitted, report = fit_prm(model, inputs, inputs, settings, tmp_path / "fit")
    assert set(fitted.state_dict()) == names
    assert report.quality["all"].loss < report.quality["head"].loss < report.quality["before"].loss


@pytest.mark.parametrize("surprise", [True, False])
def test_next_token_loss_keeps_right_steps_likely(policy: Path, tmp_path: Path, surprise: bool) -> None:
    """With it the backbone writes right steps better than without; the head still learns."""
    inputs, lm_head = toy_inputs(64), policy_lm_head(policy)
    batch = collate(inputs, pad_id=0)
    losses = []
    for weight in (0.0, 1.0):
        settings = dataclasses.replace(QUICK, epochs=6, learning_rate=3e-3, lm_weight=weight, select_by="loss")
        model, report = fit_prm(
            build_prm(policy, surprise=surprise), inputs, inputs, settings, tmp_path / f"{weight}", lm_head_VH=lm_head
        )
        assert report.quality["all"].loss < report.quality["before"].loss
        with torch.no_grad():
            hidden = model.eval().base_model(batch.input_ids_BT).last_hidden_state
        logprobs = token_logprobs(hidden, lm_head, batch.input_ids_BT)
        losses.append(right_step_loss(logprobs, batch.right_token_weights_BT, steps_in_window=1).item())
    assert losses[1] < 0.95 * losses[0]
    if not surprise:
        with pytest.raises(InputError, match="lm_head_VH"):
            fit_prm(build_prm(policy, surprise=False), inputs, inputs, settings, tmp_path / "none")


def test_held_out_problems_share_no_path_with_training() -> None:
    inputs = toy_inputs(1000, problems=200)
    train, held_out = split_by_problem(inputs, 0.2, seed=3)
    assert len(train) + len(held_out) == 1000
    assert 25 <= len({one.problem_id for one in held_out}) <= 55
    assert not {one.problem_id for one in train} & {one.problem_id for one in held_out}
    assert split_by_problem(inputs[::-1], 0.2, seed=3)[1] == held_out[::-1]
    assert {one.problem_id for one in split_by_problem(inputs, 0.2, seed=4)[1]} != {one.problem_id for one in held_out}
    with pytest.raises(InputError, match="1 problem"):
        split_by_problem(toy_inputs(5, problems=1), 0.2)


def test_no_problem_changes_sides_when_others_are_added() -> None:
    inputs = toy_inputs(400, problems=200)
    few = [one for one in inputs if stable_hash(one.problem_id) % 3 == 0]
    held_out = {one.problem_id for one in split_by_problem(inputs, 0.2)[1]}
    assert {one.problem_id for one in split_by_problem(few, 0.2)[1]} == held_out & {one.problem_id for one in few}


def test_neither_side_of_the_split_is_empty() -> None:
    for fraction in (0.001, 0.499):
        for seed in range(20):
            train, held_out = split_by_problem(toy_inputs(6, problems=2), fraction, seed=seed)
            assert {one.problem_id for one in train}
            assert {one.problem_id for one in held_out}


def test_paths_without_labels_are_no_training_data(policy: Path, tmp_path: Path) -> None:
    unlabelled = [PRMInput(one.token_ids, one.step_positions) for one in toy_inputs(8)]
    with pytest.raises(InputError, match="0 training and 8 held-out"):
        fit_prm(build_prm(policy), unlabelled, toy_inputs(8), QUICK, tmp_path / "fit")


def test_training_ignores_what_is_labelled_ignored(policy: Path, tmp_path: Path) -> None:
    """A path whose last labels are ignored trains exactly like the same path with those steps taken off."""
    inputs = [one for one in toy_inputs(80) if len(one.step_positions) >= 3][:32]
    masked = [dataclasses.replace(one, labels=(*one.labels[:2], *(-100.0,) * (len(one.labels) - 2))) for one in inputs]
    short = [
        PRMInput(
            one.token_ids[: one.step_positions[1] + 1], one.step_positions[:2], 0, one.labels[:2], one.problem_id, 2
        )
        for one in inputs
    ]
    held_out = toy_inputs(16, seed=1)
    fitted = [
        fit_prm(build_prm(policy), data, held_out, QUICK, tmp_path / name)[0]
        for name, data in (("masked", masked), ("short", short))
    ]
    assert_equal_weights(*fitted, tolerance=1e-6)
    whole, _ = fit_prm(build_prm(policy), inputs, held_out, QUICK, tmp_path / "whole")
    ours, theirs = score_paths(whole, held_out), score_paths(fitted[0], held_out)
    assert ours[0] != pytest.approx(theirs[0], abs=1e-4)
