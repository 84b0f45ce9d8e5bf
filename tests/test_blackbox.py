"""Black boxes: what is caught, that writing changes nothing, and that a replay gives the run's numbers bit for bit."""

from __future__ import annotations

import json
import math

import pytest
import torch
from fault_toys import boxes, put, run_with, set_weight
from policy_toys import toy_model, toy_trainer

from common.models import weights_hash
from policy.blackbox import BoxSettings
from policy.replay import main, replay


@pytest.mark.parametrize(
    ("key", "value", "name", "kind"),
    [
        ("advantages", math.nan, "advantages", "loss"),
        ("old_per_token_logps", -math.inf, "old log-probs", "ratio"),
        ("ref_per_token_logps", math.inf, "reference log-probs", "ratio"),
    ],
)
def test_fault_in_an_input_is_caught_skipped_boxed_and_named(tmp_path, key, value, name, kind):
    trainer = run_with(tmp_path, put(key, value))
    assert trainer.blackbox.counts[kind] == trainer.skipped_updates == 2  # the batch is passed over twice
    assert boxes(tmp_path) == ["blackbox-1", "blackbox-3"]
    found = replay(tmp_path / "boxes" / "blackbox-1")
    assert found.reproduced
    assert found.exact
    assert found.first == {"stage": "input", "name": name, "rank": 0, "micro_batch": 0, "path_id": trainer.hit}
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert [math.isfinite(loss) for loss in losses] == [True, kind != "loss", True, kind != "loss"]
    box = torch.load(tmp_path / "boxes" / "blackbox-1" / "rank-0.pt", weights_only=True)
    assert {len(batch["problem_ids"]) for batch in box["batches"]} == {4}
    assert len(torch.load(tmp_path / "boxes" / "blackbox-1" / "optimiser.pt", weights_only=True)["state"]) > 0


def test_nan_in_a_weight_ends_the_run_and_is_named(tmp_path):
    trainer = run_with(tmp_path, set_weight("model.layers.1.mlp.up_proj.weight", math.nan))
    assert "3 updates in a row" in trainer.notes[-1]
    found = replay(tmp_path / "boxes" / "blackbox-1")
    assert found.reproduced
    assert found.first == {"stage": "weight", "name": "model.layers.1.mlp.up_proj.weight", "rank": 0}


def test_weight_that_is_bad_when_a_batch_begins_ends_the_run_before_sampling(tmp_path):
    model = toy_model()
    model.lm_head.weight.data[3, 3] = math.inf
    trainer = run_with(tmp_path, model=model)
    assert trainer.notes[-1].startswith("ended: update 0: weight lm_head.weight is not finite")
    assert trainer.sampler.calls == []
    assert trainer.blackbox.counts == {"weight": 1}
    found = replay(tmp_path / "boxes" / "blackbox-0")
    assert (found.reproduced, found.losses, found.first["name"]) == (True, (), "lm_head.weight")


def test_logits_that_overflow_are_named_by_module(tmp_path):
    run_with(tmp_path, set_weight("model.layers.0.mlp.gate_proj.weight", 1e38))
    found = replay(tmp_path / "boxes" / "blackbox-1")
    assert found.reproduced
    assert (found.first["stage"], found.first["name"]) == ("module", "model.layers.0.mlp.gate_proj")


def test_gradient_that_overflows_behind_a_finite_loss(tmp_path):
    def scale(trainer):
        with torch.no_grad():
            trainer.model.lm_head.weight *= 1e28
            trainer.model.model.norm.weight *= 1e-28

    trainer = run_with(tmp_path, scale)
    assert trainer.blackbox.counts["gradient"] > 0
    assert trainer.blackbox.counts["loss"] == 0
    found = replay(tmp_path / "boxes" / "blackbox-1")
    assert found.reproduced
    assert found.first["stage"] == "gradient"
    assert all(math.isfinite(loss) for loss in found.losses)


def test_number_that_follows_from_nothing_in_the_box_is_not_reproduced(tmp_path, capsys):
    """A loss made NaN after it was computed, as broken memory would: the box is written, the replay says no."""

    def inject(trainer):
        honest = trainer._compute_loss

        def broken(model, inputs):
            loss = honest(model, inputs)
            trainer._parts[-1].loss.data.fill_(math.nan)
            return loss

        trainer._compute_loss = broken

    run_with(tmp_path, inject)
    assert boxes(tmp_path)[0] == "blackbox-1"
    capsys.readouterr()
    assert main([str(tmp_path / "boxes" / "blackbox-1")]) == 1
    *said, last = capsys.readouterr().out.splitlines()
    assert said[0] == "differs: rank 0, micro-batch 1: loss"
    assert said[-1] == "differs: nothing is non-finite"
    assert json.loads(last)["reproduced"] is False


def test_boxes_of_kl_spikes_and_scores_change_nothing_and_replay(tmp_path, capsys):
    """Every update is boxed, up to the limit: the weights are those of the run without a box, bit for bit."""

    def nan_score(prompt_ids, paths):
        return [[0.5] * (len(path.steps) - 1) + [math.nan] for path in paths]

    plain = toy_trainer(tmp_path / "plain", arguments={"max_steps": 4}, score=nan_score)
    plain.train()
    box = BoxSettings(tmp_path / "boxes", limit=3, kl_spike=1e-9)
    trainer = run_with(tmp_path, box=box, score=nan_score)
    assert weights_hash(trainer.model) == weights_hash(plain.model)
    assert trainer.blackbox.counts == {"score": 1, "kl": 3}  # the first update's KL is 0
    assert boxes(tmp_path) == ["blackbox-0", "blackbox-1", "blackbox-2"]
    first = replay(tmp_path / "boxes" / "blackbox-0")
    assert (first.reproduced, first.kinds, first.first["stage"]) == (True, ("score",), "score")
    capsys.readouterr()
    assert main([str(tmp_path / "boxes" / "blackbox-2")]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (row["reproduced"], row["exact"], row["kinds"]) == (True, True, ["kl"])
    assert row["grad_norm"] == replay(tmp_path / "boxes" / "blackbox-2").grad_norm

    again = run_with(tmp_path, box=box, score=nan_score)  # a resumed run counts the boxes that are there
    assert len(boxes(tmp_path)) == 3
    assert weights_hash(again.model) == weights_hash(plain.model)


def test_bad_score_of_a_path_that_the_boxed_update_does_not_hold_is_replayed(tmp_path):
    plain = run_with(tmp_path / "plain")
    rows = [int(row) for batch in plain._buffered_inputs[2:] for row in batch["rollout_row"]]  # the second update's
    late = next(plain._rollout.paths[row].path_id for row in rows if plain._rollout.scores[row])

    def nan_late(prompt_ids, paths):
        return [[math.nan if path.path_id == late else 0.5 for _ in path.steps] for path in paths]

    run_with(tmp_path, score=nan_late)
    box = tmp_path / "boxes" / "blackbox-0"
    held = torch.load(box / "rank-0.pt", weights_only=True)["batches"]
    assert late not in [path for batch in held for path in batch["path_ids"]]
    found = replay(box)
    assert found.reproduced
    assert found.first == {"stage": "score", "name": "PRM score of step 0", "rank": 0, "path_id": late}


def test_size_is_bounded_and_damage_is_told(tmp_path, capsys):
    for limit, left_out, code in ((200_000, ["optimiser"], 0), (1000, ["optimiser", "weights"], 2)):
        box = BoxSettings(tmp_path / str(limit), limit=1, kl_spike=1e-9, max_bytes=limit)
        run_with(tmp_path, box=box)
        folder = next((tmp_path / str(limit)).iterdir())
        facts = json.loads((folder / "box.json").read_text())
        assert facts["left_out"] == left_out
        assert sum(path.stat().st_size for path in folder.iterdir()) < max(limit, facts["bytes"]["batches"] + 30_000)
        assert main([str(folder)]) == code
    assert "written without the weights" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    whole = tmp_path / "200000" / "blackbox-1" / "weights.pt"
    whole.write_bytes(whole.read_bytes()[:-9])
    assert main([str(whole.parent)]) == 2
    assert "damaged, weights.pt is not as it was written" in capsys.readouterr().err


def test_full_disk_costs_the_box_and_not_the_run(tmp_path, monkeypatch):
    plain = toy_trainer(tmp_path / "plain", arguments={"max_steps": 4})
    plain.train()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    trainer = run_with(tmp_path, box=BoxSettings(tmp_path / "boxes", limit=1, kl_spike=1e-9))
    assert weights_hash(trainer.model) == weights_hash(plain.model)
    assert "black box of kl NOT written: [Errno 28] No space left on device" in trainer.notes
    assert boxes(tmp_path) == []
