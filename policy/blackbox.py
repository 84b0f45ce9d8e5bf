"""The black box: at an update with a non-finite number or a KL spike, all that ``python -m policy.replay`` needs.

Looked at before every update, on every rank, and agreed by all ranks (the trainer adds the flags up):

    loss      a micro-batch's loss is not finite                                        -> the update is skipped
    gradient  the norm of the update's gradient is not finite                           -> the update is skipped
    ratio     a counted token's log-prob (new, old or reference) is not finite          -> the update is skipped
    score     the PRM gave a path a score that is not finite (the path trains on its outcome alone)
    kl        the update's KL to the reference is above ``kl_spike``
    weight    a weight of the policy is not finite when a generation batch begins       -> the run ends

Files of ``blackbox-<update>/``: ``box.json`` (settings, versions), ``rank-<r>.pt`` (what the rank saw, its micro-
batches and the numbers they gave, its non-finite gradients, its scores, generator states), ``prm-<r>.pt`` (the PRM that
gave a bad score), ``weights.pt`` and ``optimiser.pt`` (before the update), ``sha256.json``. Writing draws no random
number and changes no tensor.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import pathlib
import platform
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.checksums import write_manifest
from common.models import first_nonfinite, tensor_bytes, weights_hash
from common.runs import write_atomic
from common.sharding import local_weights
from policy.boxed_scores import bad_score, boxed_scores, keep_prm, prm_bytes
from policy.gradients import nonfinite_gradients
from policy.objective import PolicyLoss

AGREED = ("loss", "gradient", "ratio", "score")
"""Kinds that a rank sees by itself; the ranks add their flags up."""
SKIPPED = frozenset({"loss", "gradient", "ratio"})
"""Kinds whose update is not applied."""
LIBRARIES = ("torch", "transformers", "trl", "accelerate", "numpy")
NUMBERS = tuple(field.name for field in dataclasses.fields(PolicyLoss))


@dataclasses.dataclass(frozen=True)
class BoxSettings:
    """Where boxes go and when one is written.

    Attributes:
        folder: holds the ``blackbox-<update>`` folders.
        limit: most boxes of a run, resumed parts included; 0 writes none.
        kl_spike: KL to the reference of one update, nats a token, above which a box is written; None: never.
        max_bytes: most bytes of a box. One that would be larger is written without the optimiser's state, and if that
            is not enough without the weights (it then names what was seen but cannot be replayed).
        config: the run's configuration, kept in the box.
    """

    folder: pathlib.Path
    limit: int = 3
    kl_spike: float | None = 1.0
    max_bytes: int = 8 * 10**9
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class BlackBox:
    """Looks at every update of a run, counts what is not finite, and writes the boxes.

    Attributes:
        counts: updates (``weight``: generation batches) of each kind so far; part of every checkpoint.
    """

    def __init__(self, settings: BoxSettings | None) -> None:
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._logprobs: list[Tensor] = []
        self._scored: Any = None
        self._written = len(list(settings.folder.glob("blackbox-*"))) if settings else 0

    def keep(self, logprobs_BT: Tensor) -> None:
        """Keep a micro-batch's log-probs until the end of its update."""
        self._logprobs.append(logprobs_BT.detach())

    def look(self, trainer: Any, grad_norm: Any) -> dict[str, str]:
        """Return what this rank sees at the end of an update's backward passes: kind -> where."""
        seen = self.unfit(trainer)
        if grad_norm is not None and not math.isfinite(float(grad_norm)):
            seen["gradient"] = f"norm {float(grad_norm)}"
        rollout = trainer._rollout
        if rollout is not self._scored:  # once a generation batch
            self._scored = rollout
            if where := bad_score(rollout):
                seen["score"] = where
        return seen

    def unfit(self, trainer: Any) -> dict[str, str]:
        """What of ``look`` is known before the gradient's norm is: losses and log-probs that are not finite."""
        seen = {}
        losses = [float(part.loss.detach()) for part in trainer._parts]
        if bad := [index for index, loss in enumerate(losses) if not math.isfinite(loss)]:
            seen["loss"] = f"micro-batch {bad[0]} of {len(losses)}: {losses[bad[0]]}"
        if where := _bad_logprob(trainer.window(), self._logprobs):
            seen["ratio"] = where
        return seen

    def spike(self, kl: float) -> bool:
        """True when an update's KL to the reference, nats a token, is above ``kl_spike``."""
        return self.settings is not None and self.settings.kl_spike is not None and kl > self.settings.kl_spike

    def record(self, trainer: Any, kinds: Iterable[str], seen: Mapping[str, str], grad_norm: Any) -> None:
        """Count an update's kinds, the same on every rank, and write a box while there are fewer than ``limit``."""
        logprobs, self._logprobs = self._logprobs, []
        kinds = list(kinds)
        self.counts.update(kinds)
        for kind in sorted(self.counts):
            trainer._log_mean(f"nonfinite/{kind}", self.counts[kind])
        if kinds and self.settings and self._written < self.settings.limit:
            batches = _micro_batches(trainer, logprobs)
            self._write(trainer, self.settings, kinds, seen, batches, grad_norm)

    def first_bad_weight(self, trainer: Any) -> str | None:
        """Name of the first policy weight that is not finite, after writing a box; None when all are, on all ranks."""
        policy = trainer.accelerator.unwrap_model(trainer.model)
        name = first_nonfinite(local_weights(policy.named_parameters()))
        if not float(trainer._reduce_sum(torch.tensor([float(name is not None)]))[0]):
            return None
        self.counts["weight"] += 1
        if self.settings and self._written < self.settings.limit:
            self._write(trainer, self.settings, ["weight"], {"weight": name} if name else {}, [], None)
        return name or "of another rank"

    def _write(
        self,
        trainer: Any,
        settings: BoxSettings,
        kinds: list[str],
        seen: Mapping[str, str],
        batches: list[dict[str, Any]],
        grad_norm: Any,
    ) -> None:
        """Write one box by rename; a full disk costs the box and never the run."""
        update, accelerator = trainer.state.global_step, trainer.accelerator
        folder = settings.folder / f"blackbox-{update}"
        if folder.exists():  # of the same update, before a resume
            return
        self._written += 1
        part = settings.folder / f".blackbox-{update}.part"
        problem = ""
        try:
            part.mkdir(parents=True, exist_ok=True)
            norm = None if grad_norm is None else float(grad_norm)
            rank: dict[str, Any] = {"batches": batches, "grad_norm": norm, "seen": dict(seen), "rng": _rng_state()}
            rank |= _evidence(trainer, settings, kinds, seen, part)
            torch.save(rank, part / f"rank-{accelerator.process_index}.pt")
            if accelerator.is_main_process:
                _write_state(part, trainer, settings, kinds, update)
        except (OSError, RuntimeError) as error:  # torch.save raises RuntimeError on a full disk
            problem = str(error).splitlines()[0]
        if float(trainer._reduce_sum(torch.tensor([float(bool(problem))]))[0]):
            shutil.rmtree(part, ignore_errors=True)
            trainer._say(f"black box of {', '.join(kinds)} NOT written: {problem or 'another rank could not'}")
            return
        if accelerator.is_main_process:
            write_manifest(part)
            part.replace(folder)
            size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
            trainer._say(f"{', '.join(kinds)}: black box {folder}, {size:.1f} MB; python -m policy.replay {folder}")
        accelerator.wait_for_everyone()


def _bad_logprob(window: list[dict[str, Any]], logprobs: list[Tensor]) -> str | None:
    """Where the first counted token with a non-finite log-prob stands."""
    for index, (batch, new_BT) in enumerate(zip(window, logprobs, strict=True)):
        for what, values_BT, is_counted_BT in counted_logprobs(batch, new_BT):
            is_bad_BT = is_counted_BT & ~torch.isfinite(values_BT)
            if bool(is_bad_BT.any()):
                row, token = is_bad_BT.nonzero()[0].tolist()
                return f"{what} log-prob {float(values_BT[row, token])}: micro-batch {index}, row {row}, token {token}"
    return None


def counted_logprobs(batch: Mapping[str, Any], new_BT: Tensor) -> list[tuple[str, Tensor, Tensor]]:
    """(name, values, True = the token counts), each (B, T): old and reference log-probs, then the new ones."""
    found = []
    if (old_BT := batch.get("old_per_token_logps")) is not None:
        found.append(("old", old_BT, batch["is_trained"]))
    if (reference_BT := batch.get("ref_per_token_logps")) is not None:
        found.append(("reference", reference_BT, batch["is_reasoning"]))
    return [*found, ("new", new_BT, batch["is_trained"] | batch["is_reasoning"])]


def _evidence(
    trainer: Any, settings: BoxSettings, kinds: Iterable[str], seen: Mapping[str, str], part: pathlib.Path
) -> dict[str, Any]:
    """What a rank keeps beside its micro-batches, because it may be the only one where it is so: its weights, its
    gradients where they are not finite, the scores of its generation batch. A PRM that gave a bad score goes to
    ``prm-<r>.pt``.
    """
    found: dict[str, Any] = {}
    rank, model = trainer.accelerator.process_index, trainer.accelerator.unwrap_model(trainer.model)
    if rank and first_nonfinite(model.named_parameters()):
        found["weights"] = model.state_dict()
    if "gradient" in seen and _has_room(trainer, settings, tensor_bytes(list(model.parameters()))):
        found["gradients"] = nonfinite_gradients(model)
    if "score" in kinds:
        found["scored"] = boxed_scores(trainer._rollout, trainer.score)
        if "score" in seen and _has_room(trainer, settings, prm_bytes(trainer.score)):
            keep_prm(trainer.score, part / f"prm-{rank}.pt")
    return found


def _has_room(trainer: Any, settings: BoxSettings, size: int) -> bool:
    """True when the policy's weights and ``size`` bytes of every rank are within ``max_bytes``; never when sharded."""
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return False
    weights = tensor_bytes(trainer.accelerator.unwrap_model(trainer.model).state_dict())
    return weights + size * trainer.accelerator.num_processes <= settings.max_bytes


def _micro_batches(trainer: Any, logprobs: list[Tensor]) -> list[dict[str, Any]]:
    """The update's micro-batches on the CPU, with what they gave and whose paths they hold."""
    rollout, found = trainer._rollout, []
    for batch, new_BT, part in zip(trainer.window(), logprobs, trainer._parts, strict=True):
        rows = batch["rollout_row"].tolist()
        found.append(
            {
                "tensors": {name: t.detach().cpu() for name, t in batch.items() if isinstance(t, Tensor)},
                "new_logprobs": new_BT.cpu(),
                "numbers": {name: getattr(part, name).detach().cpu() for name in NUMBERS},
                "problem_ids": [rollout.problems[row].id for row in rows],
                "path_ids": [rollout.paths[row].path_id for row in rows],
                "outcomes": [float(rollout.rewards[row].outcome) for row in rows],
                "rewards": [float(rollout.rewards[row].reward) for row in rows],
                "scores": [[float(score) for score in rollout.scores[row]] for row in rows],
            }
        )
    return found


def _write_state(part: pathlib.Path, trainer: Any, settings: BoxSettings, kinds: list[str], update: int) -> None:
    """Weights, optimiser and ``box.json``; the main rank's part of a box."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    is_sharded = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    optimiser = {} if is_sharded or trainer.optimizer is None else trainer.optimizer.state_dict()
    sizes = {"weights": tensor_bytes(model.state_dict()), "optimiser": tensor_bytes(optimiser)}
    ranks = trainer.accelerator.num_processes
    sizes["batches"] = (part / "rank-0.pt").stat().st_size * ranks
    if "score" in kinds and _has_room(trainer, settings, prm_bytes(trainer.score)):
        sizes["prm"] = prm_bytes(trainer.score) * ranks
    left_out = ["weights", "optimiser"] if is_sharded else []
    for name in ("optimiser", "weights"):
        if sum(size for key, size in sizes.items() if key not in left_out) > settings.max_bytes:
            left_out.append(name)
    if "weights" not in left_out:
        torch.save(model.state_dict(), part / "weights.pt")
    if "optimiser" not in left_out:
        torch.save(optimiser, part / "optimiser.pt")
    facts = {
        "update": update,
        "kinds": kinds,
        "bytes": sizes,
        "left_out": sorted(set(left_out)),
        "ranks": ranks,
        "weights_hash": None if is_sharded else weights_hash(model),
        "model_class": type(model).__name__,
        "model": model.config.to_dict(),
        "attention": model.config._attn_implementation,
        "loss": dataclasses.asdict(trainer.loss_settings()),
        "temperature": trainer.temperature,
        "max_grad_norm": trainer.args.max_grad_norm,
        "mixed_precision": trainer.accelerator.mixed_precision,
        "device": trainer.accelerator.device.type,
        "threads": torch.get_num_threads(),
        "arguments": trainer.args.to_dict(),
        "settings": dataclasses.asdict(trainer.settings),
        "config": dict(settings.config),
        "versions": {"python": platform.python_version()} | {n: importlib.metadata.version(n) for n in LIBRARIES},
    }
    write_atomic(part / "box.json", json.dumps(facts, indent=1, default=str))


def _rng_state() -> dict[str, Any]:
    """State of every generator when the box is written; the loss itself draws no random number."""
    numpy_state = json.dumps(np.random.get_state(legacy=False), default=lambda array: array.tolist())
    found: dict[str, Any] = {"torch": torch.get_rng_state(), "python": repr(random.getstate()), "numpy": numpy_state}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    return found
