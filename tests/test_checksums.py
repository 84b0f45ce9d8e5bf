"""Checkpoints that were damaged, cut, or never written to their end; runs that trained nothing."""

from __future__ import annotations

import errno
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from policy_toys import toy_model, toy_problems, toy_tokenizer, toy_trainer

from common.checkpoints import newest_intact
from common.checksums import MANIFEST, NO_MANIFEST, damage, write_manifest
from common.cli import stage_main
from common.errors import RunError
from common.models import weights_hash
from common.records import FinishReason, Verdict
from common.runs import Run, write_rows
from data_gen.steps import build_paths
from policy.checkpoints import last_complete_checkpoint, use_intact_best
from policy.train import train_stage

SAVED = {"save_strategy": "steps", "save_steps": 4}


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / "trainer_state.json").write_text('{"step": 1}')
    (path / "weights").write_bytes(bytes(range(256)))
    write_manifest(path)
    return path


@pytest.mark.parametrize("harm", ["flip", "cut", "delete", "manifest"])
def test_every_harm_to_a_file_is_found_and_the_checkpoint_before_is_used_aloud(tmp_path, harm):
    old, new = checkpoint(tmp_path, 4), checkpoint(tmp_path, 12)
    said: list[str] = []
    assert damage(new) is None
    assert newest_intact(tmp_path, ("trainer_state.json",), said.append) == str(new)
    assert said == []
    weights = new / "weights"
    if harm == "flip":
        weights.write_bytes(b"\x01" + weights.read_bytes()[1:])
    elif harm == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif harm == "delete":
        weights.unlink()
    else:
        (new / MANIFEST).write_text('{"weights": "ab')
    assert newest_intact(tmp_path, ("trainer_state.json",), said.append) == str(old)
    assert len(said) == 1
    assert said[0].startswith(f"{new} is passed over: ")
    assert (MANIFEST if harm == "manifest" else "weights") in said[0]


def test_checkpoint_without_manifest_is_taken_only_when_no_other_is_good(tmp_path):
    old, new = checkpoint(tmp_path, 4), checkpoint(tmp_path, 8)
    (new / MANIFEST).unlink()
    said: list[str] = []
    assert damage(new) == NO_MANIFEST
    assert newest_intact(tmp_path, ("trainer_state.json",), said.append) == str(old)
    shutil.rmtree(old)
    assert newest_intact(tmp_path, ("trainer_state.json",), said.append) == str(new)
    assert said == [f"{new} has no checksums and is taken as it is"]


def test_damaged_and_unfinished_checkpoints_of_a_policy_run_leave_it_exact(tmp_path, monkeypatch, capsys):
    """Straight run; a run whose newest checkpoint is damaged; one whose disk fills up while it writes the second."""
    straight = toy_trainer(tmp_path / "straight", arguments=SAVED)
    straight.train()
    newest = tmp_path / "straight" / "checkpoint-8"
    assert damage(newest) is None
    wanted = weights_hash(straight.model)

    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert last_complete_checkpoint(tmp_path / "straight") == str(tmp_path / "straight" / "checkpoint-4")
    assert "checkpoint-8 is passed over: model.safetensors is not as it was written" in capsys.readouterr().out
    straight.state.best_model_checkpoint = str(newest)
    straight.state.log_history.append({"step": 4, "eval_accuracy": 0.25})
    use_intact_best(straight.state, tmp_path / "straight", print)
    assert straight.state.best_model_checkpoint.endswith("checkpoint-4")
    assert (straight.state.best_metric, straight.state.best_global_step) == (0.25, 4)
    shutil.rmtree(tmp_path / "straight" / "checkpoint-4")
    straight.state.best_model_checkpoint = str(newest)
    with pytest.raises(RunError, match=r"is damaged .* and there is no other"):
        use_intact_best(straight.state, tmp_path / "straight", print)

    save = torch.save

    def full(content, path, *rest):
        if "checkpoint-8" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(content, path, *rest)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        toy_trainer(tmp_path / "full", arguments=SAVED).train()
    monkeypatch.undo()
    assert (tmp_path / "full" / "checkpoint-8" / "model.safetensors").exists()  # half of a checkpoint is there
    good = last_complete_checkpoint(tmp_path / "full")
    assert good.endswith("checkpoint-4")
    resumed = toy_trainer(tmp_path / "full", arguments=SAVED)
    resumed.train(resume_from_checkpoint=good)
    assert weights_hash(resumed.model) == wanted
    assert last_complete_checkpoint(tmp_path / "full").endswith("checkpoint-8")


# ---- a run that trained nothing never ends with exit code 0 ----


def toy_run(root: Path) -> list[str]:
    """A run folder whose ``sample`` stage is done, on the toy model; returns the command line of stage ``ppo``."""
    toy_model().save_pretrained(root / "model")
    toy_tokenizer().save_pretrained(root / "model")
    stage = Run(root / "run").stage("sample")
    stage.path.mkdir(parents=True)
    for name, count in (("train", 8), ("validation", 2)):
        write_rows(stage.file(f"problems_{name}.jsonl"), [problem.to_row() for problem in toy_problems(count)])
    stage.file("DONE").write_text(json.dumps({"seconds": 0}))
    config = root / "toy.yaml"
    config.write_text(
        f"base: {{model: {root / 'model'}, threads: 1}}\ndata: {{max_new_tokens: 12}}\n"
        "ppo: {process_weight: 0, problems: 4, paths: 2, minibatches: 1, epochs: 1, batches: 1, micro_batch: 8,"
        " eval_every: 1, difficulty_bands: 1, pass_low: 0, pass_high: 1}\n"
    )
    return ["--config", str(config), "--run", str(root / "run")]


@pytest.fixture
def mixed_grades(monkeypatch):
    """Half of the completions are right, whatever they say, and none is cut: rewards differ on a random model."""

    def grade(problems, sampled, *, tokenizer, stop, seed, indices):
        verdicts = [Verdict.CORRECT if sum(ids) % 2 else Verdict.WRONG for ids, _ in sampled]
        ended = [(ids, FinishReason.STOP) for ids, _ in sampled]
        return build_paths(problems, ended, tokenizer, seed=seed, indices=indices, verdicts=verdicts)

    monkeypatch.setattr("policy.train.build_paths", grade)


def run_ppo(arguments):
    return stage_main("policy", "", ("base", "data", "prm", "ppo", "rounds"), train_stage, arguments)


def test_stage_with_every_update_skipped_ends_with_3_one_line_and_a_box(tmp_path, mixed_grades, monkeypatch, capsys):
    import policy.trainer

    honest = policy.trainer.micro_batch_loss

    def poisoned(logprobs_BT, entropy_BT, batch, settings):
        return honest(logprobs_BT * math.nan, entropy_BT, batch, settings)

    monkeypatch.setattr(policy.trainer, "micro_batch_loss", poisoned)
    assert run_ppo(toy_run(tmp_path)) == 3
    error = capsys.readouterr().err
    assert "policy: nothing was trained: 1 of 1 updates skipped" in error
    assert "Traceback" not in error
    stage = Run(tmp_path / "run").stage("ppo")
    assert not stage.is_done
    assert stage.file("blackbox-0").is_dir()


def test_stage_whose_weights_do_not_move_ends_with_3(tmp_path, mixed_grades, capsys):
    assert run_ppo([*toy_run(tmp_path), "ppo.learning_rate=1e-60"]) == 3
    assert "nothing was trained: 0 of 1 updates skipped, weights as at the start" in capsys.readouterr().err


def test_stage_on_a_policy_with_a_nan_weight_ends_with_3(tmp_path, mixed_grades, capsys):
    arguments = toy_run(tmp_path)
    model = toy_model()
    model.lm_head.weight.data[2, 2] = math.nan
    model.save_pretrained(tmp_path / "model")
    assert run_ppo(arguments) == 3
    assert "weight lm_head.weight is not finite" in capsys.readouterr().err


def test_stage_that_fills_the_disk_ends_with_3_and_goes_on_when_there_is_space(
    tmp_path, mixed_grades, monkeypatch, capsys
):
    arguments = toy_run(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        assert run_ppo(arguments) == 3
    assert "policy: disk full" in capsys.readouterr().err
    assert run_ppo(arguments) == 0
    assert Run(tmp_path / "run").stage("ppo").summary["nonfinite"] == {}
