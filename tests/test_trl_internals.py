"""The hooks of TRL that the policy trainer stands on. When one of these fails, read what the named method became."""

from __future__ import annotations

import hashlib
import inspect
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import trl
from policy_toys import RecordedSampler, toy_trainer
from trl import GRPOTrainer
from trl.trainer import utils as trl_utils

from policy.options import PolicySettings
from policy.trainer import ProcessPPOTrainer

HOOKS = {
    "_prepare_inputs": (GRPOTrainer, "_step, generate_every, _buffered_inputs, shuffle, split"),
    "_generate": (GRPOTrainer, "rollout_func and its keys"),
    "_generate_and_score_completions": (
        GRPOTrainer,
        "the names and shapes of its output; when old log-probs are computed",
    ),
    "_compute_loss": (GRPOTrainer, "the oracle; normaliser, KL, ratio"),
    "training_step": (GRPOTrainer, "_step counts micro-steps"),
    "get_train_dataloader": (GRPOTrainer, "the dataloader gives whole generation batches"),
    "shuffle_sequence_dict": (trl_utils, "tensors with first dimension B travel"),
    "split_tensor_dict": (trl_utils, "tensors with first dimension B travel"),
    "add_fused_lm_head": (trl_utils, "fused_lm_head=True, log_probs, entropy"),
}
EXPECTED = {
    "_prepare_inputs": "f824e7fb0714",
    "_generate": "2a27fdf8f5e6",
    "_generate_and_score_completions": "1fa48922792d",
    "_compute_loss": "80295546bbdb",
    "training_step": "9e18632f7dd8",
    "get_train_dataloader": "2bffe5a57c53",
    "shuffle_sequence_dict": "bab038755e57",
    "split_tensor_dict": "b61a5760a03e",
    "add_fused_lm_head": "422d009f04b6",
}
"""First digits of the SHA-256 of each hook's source."""


def test_trl_is_the_pinned_version():
    assert trl.__version__.startswith("1.16."), f"the trainer was written against TRL 1.16, found {trl.__version__}"


@pytest.mark.parametrize("name", HOOKS)
def test_hook_reads_as_it_did(name):
    owner, what = HOOKS[name]
    digest = hashlib.sha256(inspect.getsource(getattr(owner, name)).encode()).hexdigest()[:12]
    assert digest == EXPECTED[name], f"TRL changed {name}; the trainer relies on: {what}"


class OracleTrainer(ProcessPPOTrainer):
    """Compares loss and gradient of every micro-batch with TRL's own on the same inputs."""

    worst_loss = worst_gradient = 0.0
    compared = 0

    def _compute_loss(self, model, inputs):
        ours = super()._compute_loss(model, inputs)
        twin = object.__new__(GRPOTrainer)  # TRL's methods, also its log-probs with padding on the left, on our state
        twin.__dict__ = self.__dict__
        advantages_BT = inputs["advantages"]
        lengths_B = inputs["completion_mask"].sum(1)
        last_B = advantages_BT.gather(1, lengths_B[:, None] - 1)[:, 0]
        assert torch.equal(advantages_BT, last_B[:, None] * inputs["completion_mask"])  # full mask, one value a path
        assert torch.equal(inputs["is_reasoning"], inputs["completion_mask"].bool())
        theirs = GRPOTrainer._compute_loss(twin, model, inputs | {"advantages": last_B})
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if self.accelerator.num_processes == 1:
            mine = torch.autograd.grad(ours, weights, retain_graph=True)
            his = torch.autograd.grad(theirs, weights, retain_graph=True)
            error = max(float((a - b).abs().max()) for a, b in zip(mine, his, strict=True))
            size = max(float(b.abs().max()) for b in his)
            type(self).worst_gradient = max(self.worst_gradient, error / max(size, 1.0))
        type(self).worst_loss = max(self.worst_loss, abs(ours.item() - theirs.item()))
        type(self).compared += 1
        return ours


def run_oracle(folder, accumulation, epochs, **arguments):
    """Train two generation batches on the outcome alone, with KL on all tokens; return the trainer."""

    class Fresh(OracleTrainer):
        pass

    trainer = toy_trainer(
        folder,
        arguments={
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": accumulation,
            "steps_per_generation": accumulation,
            "num_iterations": epochs,
            "max_steps": 2 * epochs,
            "learning_rate": 1e-4,
        }
        | arguments,
        score=None,
        settings=PolicySettings(mask_answer_kl=False),
        trainer_class=Fresh,
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("is_kl_corrected", [False, True])
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_loss_and_gradient_are_trls(tmp_path, accumulation, epochs, is_kl_corrected):
    trainer = run_oracle(tmp_path, accumulation, epochs, use_bias_correction_kl=is_kl_corrected)
    assert trainer.compared == 2 * accumulation * epochs
    assert trainer.worst_loss < 1e-6
    assert trainer.worst_gradient < 1e-6


def test_token_advantages_and_masks_survive_shuffle_and_split(tmp_path):
    seen = {}

    class Spy(ProcessPPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            seen["before"] = {key: value.clone() for key, value in output.items()}
            return output

        def _prepare_inputs(self, generation_batch):
            batch = super()._prepare_inputs(generation_batch)
            seen.setdefault("after", self._buffered_inputs)
            return batch

    trainer = toy_trainer(tmp_path, arguments={"max_steps": 4}, trainer_class=Spy)
    trainer.train()
    before, after = seen["before"], seen["after"]
    assert len(after) == 4
    keys = ["prompt_ids", "completion_ids", "completion_mask", "advantages", "is_reasoning", "is_trained"]
    keys += ["old_per_token_logps", "ref_per_token_logps"]

    def rows(batches):
        return sorted(
            tuple(tuple(batch[key][row].flatten().tolist()) for key in keys)
            for batch in batches
            for row in range(len(batch["completion_ids"]))
        )

    assert rows([before]) == rows(after)
    assert before["advantages"].shape == before["completion_ids"].shape
    assert before["advantages"].std(dim=1).max() > 0  # really one value a token
    order = torch.cat([batch["completion_ids"] for batch in after])
    assert not torch.equal(order, before["completion_ids"])  # really shuffled


def test_trl_does_not_carry_its_micro_step_over_a_resume():
    """Why ``policy.upkeep`` saves ``_step``: nothing in TRL writes or restores it."""
    for name in ("_save_checkpoint", "_load_optimizer_and_scheduler"):
        assert "_step" not in inspect.getsource(getattr(GRPOTrainer, name)).replace("global_step", "")


RANK_SCRIPT = """
import json, os, pathlib, sys
import torch
torch.set_num_threads(1)
sys.path[:0] = [os.environ["PROJECT"], os.environ["PROJECT"] + "/tests"]
from test_trl_internals import final_weights, run_oracle
folder = sys.argv[1]
trainer = run_oracle(folder, 2, 2, per_device_train_batch_size=4)
if trainer.accelerator.is_main_process:
    torch.save(final_weights(trainer), folder + "/weights.pt")
rank = trainer.accelerator.process_index
found = {"loss": trainer.worst_loss, "compared": trainer.compared, "ranks": trainer.accelerator.num_processes}
pathlib.Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
"""


def final_weights(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


@pytest.mark.slow
def test_two_ranks_agree_with_trl_and_with_one_rank(tmp_path):
    import json

    project = pathlib.Path(__file__).parent.parent
    script = tmp_path / "rank.py"
    script.write_text(RANK_SCRIPT)
    environment = os.environ | {"PROJECT": str(project), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "--master_port=29641",
    ]
    done = subprocess.run(
        [*command, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        found = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert found["ranks"] == 2
        assert found["compared"] == 8
        assert found["loss"] < 1e-6
    alone = final_weights(run_oracle(tmp_path / "alone", 4, 2))
    together = torch.load(tmp_path / "weights.pt")
    for name, weight in alone.items():
        torch.testing.assert_close(together[name], weight, rtol=0, atol=2e-6)


def test_recorded_rollouts_reach_the_loss_unchanged(tmp_path):
    """L36, L41: the ids in the loss are the ids sampled."""
    sampler = RecordedSampler()
    trainer = toy_trainer(tmp_path, arguments={"max_steps": 4}, sampler=sampler)
    trainer.train()
    seed, prompts = sampler.calls[0]
    sampled = sampler.sample(prompts, n=4, temperature=1.0, max_new_tokens=48, seed=seed)
    expected = sorted(tuple(path.token_ids) for group in sampled for path in group)
    found = sorted(
        tuple(ids[mask.bool()].tolist())
        for batch in trainer._buffered_inputs
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    )
    assert found == expected
