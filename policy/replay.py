"""Replay a black box on the CPU: ``python -m policy.replay runs/<name>/round-0/4_ppo/blackbox-<update>``

Rebuilds the update's micro-batches and weights, computes loss, gradient norm and every number the update logged,
compares them bit for bit with what the run had, and names the first non-finite tensor in the order of the computation:
a weight, a module's output, an input or a term of the objective, a weight's gradient, their norm; else a PRM score.

The last line is one JSON object. Exit code 0: reproduced; 1: not reproduced, so the fault lay outside the computation
(memory, a device, a hook); 2: bad input.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from trl.trainer.utils import add_fused_lm_head, disable_dropout_in_model

from common.checksums import damage
from common.errors import InputError
from common.models import weights_hash
from policy.blackbox import NUMBERS, counted_logprobs, first_nonfinite
from policy.forward import token_logprobs
from policy.microbatch import LossSettings, micro_batch_loss, model_inputs
from policy.objective import bounded_log_ratio, clipped_surrogate, kl_penalty

CLOSE = 1e-3
"""Relative difference allowed for a box that was not written on a CPU."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """What a replay gave.

    Attributes:
        kinds: what the box was written for.
        exact: True = compared bit for bit (the box comes from a CPU).
        differs: names of the numbers that are not those of the run; empty = reproduced.
        first: the first non-finite tensor: ``stage`` (weight, input, module, term, gradient, score), ``name``, and
            where there is one ``rank``, ``micro_batch`` and ``path_id``. None when everything is finite.
        losses: loss of each micro-batch, rank by rank. grad_norm: of the update, None in a box without micro-batches.
    """

    kinds: tuple[str, ...]
    exact: bool
    differs: tuple[str, ...]
    first: dict[str, Any] | None
    losses: tuple[float, ...]
    grad_norm: float | None

    @property
    def reproduced(self) -> bool:
        return not self.differs


def replay(folder: Path) -> Replay:
    """Compute the boxed update again.

    Raises:
        InputError: no box, a damaged one, or one without weights.
    """
    facts = read_facts(folder)
    torch.set_num_threads(facts["threads"])
    ranks = [torch.load(folder / f"rank-{r}.pt", weights_only=True) for r in range(facts["ranks"])]
    weights = torch.load(folder / "weights.pt", weights_only=True)
    model = build_model(facts)
    load_weights(model, weights)
    differs = [] if weights_hash(model) == facts["weights_hash"] else ["weights"]
    watch = FirstNonFinite()
    exact = facts["device"] == "cpu"
    losses: list[float] = []
    total: dict[str, Tensor] = {}
    for index, rank in enumerate(ranks):
        load_weights(model, rank.get("weights", weights))
        watch.place = {"rank": index}
        watch.note("weight", first_nonfinite(model.named_parameters()))
        model.zero_grad(set_to_none=True)
        for number, batch in enumerate(rank["batches"]):
            watch.place = {"rank": index, "micro_batch": number}
            found = backward(model, batch, facts, watch)
            losses.append(float(found["loss"]))
            differs += [f"rank {index}, micro-batch {number}: {n}" for n in unequal(found, batch, exact)]
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                share = weight.grad if len(ranks) == 1 else weight.grad / len(ranks)
                total[name] = total[name] + share if name in total else share.clone()
    grad_norm = gradient_norm(model, total, facts["max_grad_norm"]) if losses else None
    if losses and not same(torch.tensor(grad_norm), torch.tensor(ranks[0]["grad_norm"]), exact):
        differs.append("grad_norm")
    if grad_norm is not None and not math.isfinite(grad_norm):
        watch.place = {}
        watch.note("gradient", "norm of the whole gradient")
    first = watch.first or first_score(ranks)
    kinds = tuple(facts["kinds"])
    if first is None and kinds != ("kl",):
        differs.append("nothing is non-finite")
    return Replay(kinds, exact, tuple(differs), first, tuple(losses), grad_norm)


def read_facts(folder: Path) -> dict[str, Any]:
    """``box.json`` of an undamaged box that holds weights."""
    if not (folder / "box.json").is_file():
        raise InputError(f"{folder}: no box.json in it; want a blackbox-<update> folder")
    reason = damage(folder)
    if reason:
        raise InputError(f"{folder}: damaged, {reason}")
    facts = json.loads((folder / "box.json").read_text(encoding="utf-8"))
    if "weights" in facts["left_out"]:
        raise InputError(f"{folder}: written without the weights (sharded, or above the size limit); see box.json")
    return facts


def build_model(facts: Mapping[str, Any]) -> Any:
    """The policy's architecture in training mode, as the trainer prepares it."""
    model_class = getattr(transformers, facts["model_class"], None)
    if model_class is None:
        raise InputError(f"model class {facts['model_class']} is not one of transformers'; cannot be rebuilt")
    config = model_class.config_class.from_dict(facts["model"])
    config._attn_implementation = facts["attention"]
    model = model_class(config)
    disable_dropout_in_model(model)
    is_fp32_head = facts["arguments"]["cast_lm_head_to_fp32"]
    add_fused_lm_head(model, facts["temperature"], is_fp32_head, ("log_probs", "entropy"))
    return model.train()


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give the model these very weights, in their own dtype."""
    dtype = next(t.dtype for t in weights.values() if t.is_floating_point())
    model.to(dtype).load_state_dict(weights)


def backward(
    model: Any, batch: Mapping[str, Any], facts: Mapping[str, Any], watch: FirstNonFinite
) -> dict[str, Tensor]:
    """Forward and backward pass of one micro-batch; returns its numbers and its log-probs ``new_logprobs``."""
    tensors = batch["tensors"]
    watch.paths = batch["path_ids"]
    with watch.hooks(model):
        with torch.autocast("cpu", torch.bfloat16, enabled=facts["mixed_precision"] == "bf16"):
            logprobs_BT, entropy_BT = token_logprobs(model, *model_inputs(tensors))
        settings = LossSettings(**facts["loss"])
        out = micro_batch_loss(logprobs_BT, entropy_BT, tensors, settings)
        for stage, name, values in loss_terms(logprobs_BT.detach(), tensors, settings):
            watch.look(stage, name, values)
        watch.look("term", "loss", out.loss)
        out.loss.backward()
    return {name: getattr(out, name).detach() for name in NUMBERS} | {"new_logprobs": logprobs_BT.detach()}


def loss_terms(
    logprobs_BT: Tensor, batch: Mapping[str, Any], settings: LossSettings
) -> Iterator[tuple[str, str, Tensor]]:
    """(stage, name, values) of the inputs and terms of the objective in the order it computes them, 0 where no token
    counts.
    """
    is_trained_BT, is_reasoning_BT = batch["is_trained"], batch["is_reasoning"]
    advantages_BT = batch["advantages"]
    yield "input", "advantages", _counted(advantages_BT, is_trained_BT)
    for name, values_BT, is_counted_BT in counted_logprobs(batch, logprobs_BT):
        yield "term" if name == "new" else "input", f"{name} log-probs", _counted(values_BT, is_counted_BT)
    old_BT, reference_BT = batch.get("old_per_token_logps"), batch.get("ref_per_token_logps")
    log_ratio_BT = bounded_log_ratio(logprobs_BT, logprobs_BT if old_BT is None else old_BT, is_trained_BT)
    yield "term", "log-ratio to the old policy", log_ratio_BT
    counted_BT = _counted(advantages_BT, is_trained_BT)
    yield "term", "surrogate", clipped_surrogate(log_ratio_BT, counted_BT, settings.clip_low, settings.clip_high)
    if reference_BT is not None:
        yield "term", "KL to the reference", kl_penalty(logprobs_BT, reference_BT, is_reasoning_BT)


def _counted(values_BT: Tensor, is_counted_BT: Tensor) -> Tensor:
    return torch.where(is_counted_BT, values_BT, torch.zeros_like(values_BT))


class FirstNonFinite:
    """Remembers the first non-finite tensor that it is shown, and where it stood.

    Attributes:
        first: see ``Replay.first``. place: rank and micro-batch at hand. paths: ids of the micro-batch's rows.
    """

    def __init__(self) -> None:
        self.first: dict[str, Any] | None = None
        self.place: dict[str, Any] = {}
        self.paths: Sequence[str] = ()

    def note(self, stage: str, name: str | None) -> None:
        if name is not None and self.first is None:
            self.first = {"stage": stage, "name": name, **self.place}

    def look(self, stage: str, name: str, values: Tensor) -> None:
        if self.first is not None or not values.is_floating_point() or bool(torch.isfinite(values).all()):
            return
        self.note(stage, name)
        if values.ndim == 2 and values.size(0) == len(self.paths) and self.first is not None:
            self.first["path_id"] = self.paths[int((~torch.isfinite(values)).nonzero()[0, 0])]

    @contextlib.contextmanager
    def hooks(self, model: nn.Module) -> Iterator[None]:
        """Look at every module's output in the forward pass and every weight's gradient in the backward pass."""

        def after_forward(name: str) -> Any:
            def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
                for values in _tensors(output):
                    self.look("module", name, values)

            return look

        def after_gradient(name: str) -> Any:
            def look(weight: Tensor) -> None:
                if weight.grad is not None:
                    self.look("gradient", name, weight.grad)

            return look

        handles = [m.register_forward_hook(after_forward(n or "model")) for n, m in model.named_modules()]
        trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        handles += [weight.register_post_accumulate_grad_hook(after_gradient(name)) for name, weight in trained]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)


def first_score(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The first PRM score of the boxed paths that is not finite."""
    for index, rank in enumerate(ranks):
        for number, batch in enumerate(rank["batches"]):
            for path_id, scores in zip(batch["path_ids"], batch["scores"], strict=True):
                step = next((step for step, score in enumerate(scores) if not math.isfinite(score)), None)
                if step is not None:
                    place = {"rank": index, "micro_batch": number, "path_id": path_id}
                    return {"stage": "score", "name": f"PRM score of step {step}", **place}
    return None


def gradient_norm(model: nn.Module, total: Mapping[str, Tensor], max_norm: float) -> float:
    """Norm of the update's gradient as the trainer takes it."""
    for name, weight in model.named_parameters():
        weight.grad = total.get(name)
    return float(nn.utils.clip_grad_norm_(model.parameters(), max_norm or math.inf))


def unequal(found: Mapping[str, Tensor], batch: Mapping[str, Any], exact: bool) -> list[str]:
    """Names of the numbers of a micro-batch that are not those of the run."""
    wanted = batch["numbers"] | {"new_logprobs": batch["new_logprobs"]}
    return [name for name, value in wanted.items() if not same(found[name], value, exact)]


def same(one: Tensor, other: Tensor, exact: bool) -> bool:
    """True when all elements are equal (NaN equals NaN), or for ``exact`` False within ``CLOSE``."""
    if exact:
        return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
    return torch.allclose(one, other.to(one.dtype), rtol=CLOSE, atol=CLOSE, equal_nan=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a black box; return the exit code (see the top of this file)."""
    parser = argparse.ArgumentParser(prog="python -m policy.replay", description="Replay a black box of a policy run.")
    parser.add_argument("blackbox", type=Path, help="folder blackbox-<update>")
    options = parser.parse_args(arguments)
    try:
        found = replay(options.blackbox)
    except InputError as error:
        print(f"policy.replay: {error}", file=sys.stderr)
        return 2
    for name in found.differs:
        print(f"differs: {name}")
    row = dataclasses.asdict(found) | {"reproduced": found.reproduced}
    print(json.dumps({name: _finite(value) for name, value in row.items()}))
    return 0 if found.reproduced else 1


def _finite(value: Any) -> Any:
    """JSON has no NaN: a non-finite number becomes text."""
    if isinstance(value, tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    raise SystemExit(main())
