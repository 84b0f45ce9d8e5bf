"""Replay a black box on the CPU: ``python -m policy.replay runs/<name>/round-0/4_ppo/blackbox-<update>``

Rebuilds the update's micro-batches and weights, computes log-probs, loss, gradient norm and every number the update
logged, compares them bit for bit with what the run had, and names the first non-finite tensor in the order of the
computation: a weight, a module's output, an input or a term of the objective, a weight's gradient, their norm; else the
weight or module of the PRM, or its score.

Boxed log-probs, gradients or scores that are not what the boxed weights give were written by something outside the
computation (memory, a device, a hook). They are named under ``written``, and what follows is computed from them.

The last line is one JSON object. Exit code 0: reproduced; 1: not reproduced, some number follows neither from the
weights nor from what was written; 2: bad input.
"""

from __future__ import annotations

import argparse
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
from trl.trainer.utils import add_fused_lm_head

from common.checksums import damage
from common.errors import InputError
from common.models import first_nonfinite, switch_off_dropout, weights_hash
from policy.blackbox import NUMBERS, counted_logprobs
from policy.boxed_scores import first_bad_score, load_kept, same_scores
from policy.forward import token_logprobs
from policy.gradients import total_norm
from policy.microbatch import LossSettings, micro_batch_loss, model_inputs
from policy.nonfinite import FirstNonFinite
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
        written: what the box holds and its weights do not give (see the top of this file); empty = the fault is in the
            computation.
        first: the first non-finite tensor: ``stage`` (weight, input, module, term, gradient; prm weight, prm module,
            score), ``name``, and where there is one ``rank``, ``micro_batch`` and ``path_id``. None when everything is
            finite.
        losses: loss of each micro-batch, rank by rank. grad_norm: of the update, None in a box without micro-batches.
    """

    kinds: tuple[str, ...]
    exact: bool
    differs: tuple[str, ...]
    written: tuple[str, ...]
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
    written: list[str] = []
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
            found, is_written = backward(model, batch, facts, watch)
            losses.append(float(found["loss"]))
            place = f"rank {index}, micro-batch {number}"
            written += [f"{place}: new log-probs"] if is_written else []
            # the entropies came from the same forward pass and are not boxed
            skipped = ("entropy_sum",) if is_written else ()
            differs += [f"{place}: {name}" for name in unequal(found, batch, exact) if name not in skipped]
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                share = weight.grad if len(ranks) == 1 else weight.grad / len(ranks)
                total[name] = total[name] + share if name in total else share.clone()
    grad_norm = None
    if losses:
        grad_norm, changed = norms(model, total, ranks, exact, watch)
        written += [] if written else changed.written
        differs += changed.differs
    first, scored = watch.first, FirstNonFinite()
    for index, rank in enumerate(ranks):
        if "scored" in rank:
            scored.place = {"rank": index}
            written += rescore(folder, index, rank["scored"], exact, scored)
    first = first or scored.first
    kinds = tuple(facts["kinds"])
    if first is None and kinds != ("kl",):
        differs.append("nothing is non-finite")
    return Replay(kinds, exact, tuple(differs), tuple(written), first, tuple(losses), grad_norm)


@dataclasses.dataclass(frozen=True)
class Changed:
    """Findings of one stage, as in ``Replay``."""

    differs: list[str]
    written: list[str]


def norms(
    model: nn.Module,
    total: Mapping[str, Tensor],
    ranks: Sequence[Mapping[str, Any]],
    exact: bool,
    watch: FirstNonFinite,
) -> tuple[float, Changed]:
    """Norm of the update's gradient (of the first rank where it is not finite), and what of it is not the run's.

    A gradient that a rank boxed because it was not finite stands in the place of the computed one.
    """
    differs, written, found = [], [], []
    for index, rank in enumerate(ranks):
        watch.place = {"rank": index}
        boxed = rank.get("gradients", {})
        for name, gradient in boxed.items():
            if name not in total or not same(total[name], gradient, exact):
                written.append(f"rank {index}: gradient of {name}")
                watch.note("gradient", name)
        norm = gradient_norm(model, {**total, **boxed})
        if not same(torch.tensor(norm), torch.tensor(rank["grad_norm"]), exact):
            differs.append("grad_norm" if len(ranks) == 1 else f"rank {index}: grad_norm")
        if not math.isfinite(norm):
            watch.place = {} if len(ranks) == 1 else watch.place
            watch.note("gradient", "norm of the whole gradient")
        found.append(norm)
    return next((norm for norm in found if not math.isfinite(norm)), found[0]), Changed(differs, written)


def rescore(folder: Path, rank: int, boxed: Mapping[str, Any], exact: bool, watch: FirstNonFinite) -> list[str]:
    """Score a rank's paths again with the PRM it boxed; names what is not finite, returns what was written."""
    bad = first_bad_score(boxed)
    if bad is None:
        return []
    watch.place |= {"path_id": bad["path_id"]}
    written = []
    kept = load_kept(folder / f"prm-{rank}.pt", boxed)
    if kept is not None:
        scorer, inputs = kept
        watch.note("prm weight", first_nonfinite(scorer.model.named_parameters()))
        with watch.hooks(scorer.model, "prm module"):
            scores = scorer.score_inputs(inputs)
        if not same_scores(scores, boxed["scores"], 0.0 if exact else CLOSE):
            written.append(f"rank {rank}: PRM scores")
    watch.note("score", bad["name"])
    return written


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
    switch_off_dropout(model)
    is_fp32_head = facts["arguments"]["cast_lm_head_to_fp32"]
    add_fused_lm_head(model, facts["temperature"], is_fp32_head, ("log_probs", "entropy"))
    return model.train()


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give the model these very weights, in their own dtype."""
    dtype = next(t.dtype for t in weights.values() if t.is_floating_point())
    model.to(dtype).load_state_dict(weights)


def backward(
    model: Any, batch: Mapping[str, Any], facts: Mapping[str, Any], watch: FirstNonFinite
) -> tuple[dict[str, Tensor], bool]:
    """Forward and backward pass of one micro-batch; returns its numbers, and True when the boxed log-probs are not
    what the forward pass gives. The loss is then computed from the boxed ones.
    """
    tensors, exact = batch["tensors"], facts["device"] == "cpu"
    watch.paths = batch["path_ids"]
    with watch.hooks(model):
        with torch.autocast("cpu", torch.bfloat16, enabled=facts["mixed_precision"] == "bf16"):
            logprobs_BT, entropy_BT = token_logprobs(model, *model_inputs(tensors))
        boxed_BT = batch["new_logprobs"]
        is_written = not same(logprobs_BT.detach(), boxed_BT, exact)
        if is_written:
            logprobs_BT = torch.where(close(logprobs_BT.detach(), boxed_BT, exact), logprobs_BT, boxed_BT)
        settings = LossSettings(**facts["loss"])
        out = micro_batch_loss(logprobs_BT, entropy_BT, tensors, settings)
        for stage, name, values in loss_terms(logprobs_BT.detach(), tensors, settings):
            watch.look(stage, name, values)
        watch.look("term", "loss", out.loss)
        out.loss.backward()
    return {name: getattr(out, name).detach() for name in NUMBERS}, is_written


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


def gradient_norm(model: nn.Module, gradients: Mapping[str, Tensor]) -> float:
    """Norm of the update's gradient as the trainer takes it; changes no gradient."""
    for name, weight in model.named_parameters():
        weight.grad = gradients.get(name)
    return float(total_norm(model))


def unequal(found: Mapping[str, Tensor], batch: Mapping[str, Any], exact: bool) -> list[str]:
    """Names of the numbers of a micro-batch that are not those of the run."""
    return [name for name, value in batch["numbers"].items() if not same(found[name], value, exact)]


def same(one: Tensor, other: Tensor, exact: bool) -> bool:
    """True when all elements are equal (NaN equals NaN), or for ``exact`` False within ``CLOSE``."""
    return one.shape == other.shape and bool(close(one, other, exact).all())


def close(one: Tensor, other: Tensor, exact: bool) -> Tensor:
    """``same``, element by element."""
    tolerance = 0.0 if exact else CLOSE
    return torch.isclose(one, other.to(one.dtype), rtol=tolerance, atol=tolerance, equal_nan=True)


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
    for name in found.written:
        print(f"written from outside the computation: {name}")
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
