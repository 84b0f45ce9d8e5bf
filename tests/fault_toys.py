"""Faults written into a toy run of the policy, on one rank or on one of two, and the boxes they leave."""

from __future__ import annotations

import math
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import Any

import torch
from policy_toys import toy_model, toy_tokenizer, toy_trainer

from policy.blackbox import BoxSettings
from policy.trainer import NonFiniteUpdates, ProcessPPOTrainer
from prm.model import build_prm, head_parameters
from prm.score import PRMScorer

VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Faulty(ProcessPPOTrainer):
    """Calls ``inject(trainer)`` before the first forward pass of update ``at_update``, gives the log-probs of that pass
    to ``into_logprobs(trainer, logprobs_BT)``, and calls ``into_gradient(trainer)`` after the update's last backward
    pass.
    """

    at_update = 1
    inject = into_gradient = into_logprobs = None

    @property
    def first_step(self):
        return self.at_update * self.args.gradient_accumulation_steps

    def _compute_loss(self, model, inputs):
        if self._step == self.first_step and self.inject:
            self.inject(self)
        return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(self, *inputs, **settings):
        logprobs_BT, *rest = super()._get_per_token_logps_and_entropies(*inputs, **settings)
        if self.into_logprobs and self._step == self.first_step and torch.is_grad_enabled():
            logprobs_BT = self.into_logprobs(self, logprobs_BT.clone())
        return logprobs_BT, *rest

    def _clip_grad_norm(self, model):
        if self.into_gradient and self._step == self.first_step + self.args.gradient_accumulation_steps:
            self.into_gradient(self)
        return super()._clip_grad_norm(model)


def run_with(folder, inject=None, *, faults=None, at_update=1, **changes):
    """A toy run of one generation batch, with black boxes, into which a fault is put; returns the trainer, trained."""
    notes: list[str] = []
    hooks = {name: staticmethod(hook) for name, hook in ({"inject": inject} | (faults or {})).items() if hook}
    hooks["at_update"] = at_update
    parts = {
        "arguments": {"max_steps": 4},
        "announce": lambda update, line: notes.append(line),
        "box": BoxSettings(folder / "boxes", kl_spike=None),
        "trainer_class": type("Run", (Faulty,), hooks),
    }
    trainer = toy_trainer(folder / "checkpoints", **(parts | changes))
    trainer.notes = notes
    try:
        trainer.train()
        trainer.refuse_bad_weights()
    except NonFiniteUpdates as error:
        notes.append(f"ended: {error}")
    return trainer


def boxes(folder):
    return sorted(path.name for path in (folder / "boxes").glob("*"))


def counted_place(trainer):
    """(batch, row, token) of a counted token of the faulty micro-batch; ``trainer.hit`` becomes its path."""
    batch = trainer._buffered_inputs[trainer.first_step]
    row, token = batch["is_reasoning"].nonzero()[5].tolist()
    trainer.hit = trainer._rollout.paths[int(batch["rollout_row"][row])].path_id
    return batch, row, token


def put(key, value):
    """A fault: one counted element of a tensor of the faulty micro-batch."""

    def inject(trainer):
        batch, row, token = counted_place(trainer)
        batch[key][row, token] = value

    return inject


def put_logprob(value):
    """A fault: the log-prob that the policy gives to one counted token."""

    def into_logprobs(trainer, logprobs_BT):
        _, row, token = counted_place(trainer)
        logprobs_BT[row, token] = value
        return logprobs_BT

    return into_logprobs


def put_gradient(value):
    """A fault: one element of one weight's gradient, after the last backward pass of an update."""

    def into_gradient(trainer):
        trainer.model.get_parameter("model.norm.weight").grad[3] = value

    return into_gradient


def set_weight(name, value, count=40):
    def inject(trainer):
        with torch.no_grad():
            trainer.model.get_parameter(name).view(-1)[:count] = value

    return inject


def save_toy_policy(folder: pathlib.Path) -> pathlib.Path:
    """Write the toy policy to a folder, once; only the main rank can (``save_pretrained`` does nothing on others)."""
    if not folder.exists():
        toy_model().save_pretrained(folder)
        toy_tokenizer().save_pretrained(folder)
    return folder


def toy_prm(policy: pathlib.Path) -> PRMScorer:
    """A real PRM on the toy policy, its head not zero."""
    return PRMScorer(build_prm(str(save_toy_policy(policy)), head_std=1.0, seed=3))


def prm_with(policy: pathlib.Path, point: str, value: float | None) -> PRMScorer:
    """``toy_prm`` with a value written into its head's weights (``prm weight``) or into the first logit of the
    longest path it scores (``prm logit``); None writes nothing.
    """
    scorer = toy_prm(policy)
    if value is not None and point == "prm weight":
        with torch.no_grad():
            head_parameters(scorer.model)["score.weight"][0, 0] = value
    elif value is not None:

        def after(_module: Any, _inputs: Any, output: Any) -> Any:
            output.logits[0, 0] = value
            return output

        scorer.model.register_forward_hook(after)
    return scorer


POINTS = ("prm weight", "prm logit", "old", "reference", "new", "gradient", "weight")


def run_point(folder: pathlib.Path, point: str, value: float | None, **changes: Any) -> Any:
    """``run_with`` a value written at one of ``POINTS``; None writes nothing (the other rank)."""
    if point.startswith("prm"):
        return run_with(folder, score=prm_with(folder.parent / "policy", point, value).score, **changes)
    faults = {}
    if value is not None:
        faults = {
            "old": {"inject": put("old_per_token_logps", value)},
            "reference": {"inject": put("ref_per_token_logps", value)},
            "new": {"into_logprobs": put_logprob(value)},
            "gradient": {"into_gradient": put_gradient(value)},
            "weight": {"inject": set_weight("model.layers.1.mlp.up_proj.weight", value)},
        }[point]
    return run_with(folder, faults=faults, **changes)


def run_two_ranks(script: str, folder: pathlib.Path, timeout: float) -> None:
    """Run a script as two ranks (gloo, CPU); ``sys.argv[1]`` is ``folder``. Fails when one ends with another code than
    0.
    """
    project = pathlib.Path(__file__).parent.parent
    path = folder / "rank.py"
    path.write_text(script)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
    shared |= {"PYTHONPATH": f"{project}{os.pathsep}{project / 'tests'}"}
    told = [folder / f"rank{rank}.err" for rank in range(2)]
    ranks = []
    for rank in range(2):
        with told[rank].open("w") as errors:
            command = [sys.executable, "-W", "ignore", str(path), str(folder)]
            environment = os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors))
    try:
        end = time.monotonic() + timeout
        while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
            assert time.monotonic() < end, f"ranks still run after {timeout} s"
            time.sleep(0.1)
    finally:
        for rank in ranks:
            rank.kill()  # when one has failed the other waits for it
    codes = [rank.wait() for rank in ranks]
    assert codes == [0, 0], "\n".join(path.read_text()[-2000:] for path in told)
