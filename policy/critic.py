"""The critic: a value model on a copy of the policy's backbone (or a head on its detached hidden states), its optimiser
and its checkpoint. The maths is in ``policy.gae``.

It learns from the same micro-batches and in the same updates as the policy, with an AdamW of its own, so there is no
weight of the value loss (``vf_coef``): AdamW does not see the scale of a loss. An update the policy skips is skipped
here too. Weights are float32 whatever the policy's; autocast is the trainer's.
"""

from __future__ import annotations

import copy
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch import Tensor, nn

from common.models import switch_off_dropout, tensor_bytes
from policy.forward import state_vectors
from policy.gae import SOURCES, Estimates, Segments, ValueTargets, explained_variance, value_loss, variance_sums
from policy.microbatch import model_inputs
from policy.options import CriticSettings

CRITIC_FILE = "critic.pt"


def backbone_of(policy: Any) -> Any:
    """The policy without its output head; of a PEFT model with its adapters in place."""
    return (policy.get_base_model() if is_peft_model(policy) else policy).base_model


class ValueModel(nn.Module):
    """A linear head with two outputs, V^p and V^o, that starts at 0, on the backbone's last hidden state.

    Args:
        policy: model whose backbone is copied (adapters merged, dropout off), or of which the hidden size is read.
        has_backbone: False = the head alone, on the policy's own detached states.
    """

    def __init__(self, policy: Any, has_backbone: bool, gradient_checkpointing: bool = False) -> None:
        super().__init__()
        self.backbone = None
        if has_backbone:
            if is_peft_model(policy):
                copied = copy.deepcopy(policy).merge_and_unload().base_model
            else:
                copied = copy.deepcopy(policy.base_model)
            self.backbone = copied.float().requires_grad_(True)
            switch_off_dropout(self.backbone)
            if gradient_checkpointing:
                self.backbone.gradient_checkpointing_enable()
        self.head = nn.utils.skip_init(nn.Linear, policy.config.get_text_config().hidden_size, len(SOURCES))
        nn.init.zeros_(self.head.weight)  # no random number is drawn
        nn.init.zeros_(self.head.bias)
        self.train()

    def forward(self, states_BNH: Tensor) -> Tensor:
        """Values (B, N, 2) of state vectors, float32."""
        with torch.autocast(states_BNH.device.type, enabled=False):
            return self.head(states_BNH.float())


class Critic:
    """Values the states of a generation batch, learns from its micro-batches, and takes a step at each update's end.

    Args:
        policy: the policy at the start of the round.
        autocast: the trainer's context for forward passes.
        max_grad_norm: limit of the gradient's norm at each update.
    """

    def __init__(
        self,
        policy: Any,
        settings: CriticSettings,
        *,
        autocast: Callable[[], Any],
        max_grad_norm: float,
        gradient_checkpointing: bool = False,
    ) -> None:
        self.settings, self.autocast, self.max_grad_norm = settings, autocast, max_grad_norm
        self.model = ValueModel(policy, settings.trunk == "own", gradient_checkpointing)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
        self.skipped = self.skipped_in_a_row = 0
        self._losses: list[Tensor] = []
        self._clipped: list[Tensor] = []

    def estimate(
        self, policy: Any, output: Mapping[str, Any], segments: Segments, flow: str, batch_size: int
    ) -> tuple[Estimates, dict[str, Tensor]]:
        """Value every state of a generation batch, without gradient.

        Args:
            policy: whose states a shared trunk reads. output: TRL's batch (ids and masks).
            segments: of its paths. flow: of the process credit. batch_size: paths a forward pass.

        Returns:
            The estimates on the CPU, and what the micro-batches need beside targets: (B, ...) tensors.
        """
        ids_BL, mask_BL, width = model_inputs(output)
        starts_BN = segments.starts_BN.to(ids_BL.device)
        backbone = backbone_of(policy) if self.model.backbone is None else self.model.backbone
        with torch.no_grad(), self.autocast():
            states_BNH = torch.cat(
                [
                    state_vectors(backbone, ids_BL[rows], mask_BL[rows], width, starts_BN[rows])
                    for rows in torch.arange(len(ids_BL), device=ids_BL.device).split(batch_size)
                ]
            )
            values_BN2 = self.model(states_BNH)
        carried = {"state_starts": starts_BN, "old_values": values_BN2}
        if self.model.backbone is None:
            carried["state_vectors"] = states_BNH
        settings = self.settings
        return Estimates(values_BN2.cpu(), flow, settings.gamma, settings.lam), carried

    def learn(self, batch: Mapping[str, Any]) -> None:
        """Add a micro-batch's gradient; losses are scaled so that their sum over update and ranks is the objective."""
        with self.autocast():
            if self.model.backbone is None:
                states_BNH = batch["state_vectors"]
            else:
                ids_BL, mask_BL, width = model_inputs(batch)
                states_BNH = state_vectors(self.model.backbone, ids_BL, mask_BL, width, batch["state_starts"])
            values_BN2 = self.model(states_BNH)
        found = value_loss(
            values_BN2,
            batch["old_values"],
            batch["value_targets"],
            batch["is_valued"],
            num_valued_2=batch["window_valued"],
            clip=self.settings.clip,
        )
        found.loss.backward()
        self._losses.append(found.loss.detach())
        self._clipped.append(found.clipped_sum)

    def update(self, num_valued: float, reduce_sum: Callable[[Tensor], Tensor], is_skipped: bool) -> dict[str, float]:
        """Take the update's step with the gradient of all ranks and return its metrics.

        Args:
            num_valued: states of the update, both sources, all ranks.
            is_skipped: True = the policy skipped this update.

        A loss or gradient that is not finite on any rank is skipped by all and counted.
        """
        sums = reduce_sum(torch.stack([torch.stack(self._losses).sum(), torch.stack(self._clipped).sum()]).double())
        self._losses, self._clipped = [], []
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        for weight in weights:
            weight.grad = reduce_sum(torch.zeros_like(weight) if weight.grad is None else weight.grad)
        norm = float(nn.utils.clip_grad_norm_(weights, self.max_grad_norm or math.inf))
        loss = float(sums[0])
        if math.isfinite(loss) and math.isfinite(norm):
            self.skipped_in_a_row = 0
            if not is_skipped:
                self.optimiser.step()
        else:
            self.skipped, self.skipped_in_a_row = self.skipped + 1, self.skipped_in_a_row + 1
        self.optimiser.zero_grad(set_to_none=True)
        finite = {"loss": loss, "grad_norm": norm} if self.skipped_in_a_row == 0 else {}
        return finite | {"clip_fraction": float(sums[1]) / max(num_valued, 1), "skipped": float(self.skipped)}

    def num_bytes(self) -> int:
        """Bytes of weights and optimiser state."""
        return tensor_bytes(self.model.state_dict()) + tensor_bytes(self.optimiser.state_dict())

    def save(self, folder: pathlib.Path) -> None:
        """Write ``critic.pt`` into a checkpoint."""
        state = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
        }
        torch.save(state, folder / CRITIC_FILE)

    def load(self, folder: pathlib.Path) -> None:
        """Restore what ``save`` wrote.

        Raises:
            ValueError: the checkpoint has no critic.
        """
        if not (folder / CRITIC_FILE).is_file():
            raise ValueError(f"{folder}: no {CRITIC_FILE}; a run with baseline gae cannot be resumed from it")
        device = next(self.model.parameters()).device
        state = torch.load(folder / CRITIC_FILE, map_location=device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.skipped, self.skipped_in_a_row = state["skipped"], state["skipped_in_a_row"]


def batch_metrics(
    targets: ValueTargets, values_BN2: Tensor, reduce_sum: Callable[[Tensor], Tensor]
) -> dict[str, float]:
    """Explained variance of each source and mean value of a generation batch, over all ranks."""
    sums_52 = reduce_sum(variance_sums(targets, values_BN2))
    found = {f"explained_variance_{source}": value for source, value in explained_variance(sums_52).items()}
    for index, source in enumerate(SOURCES):
        count, returns, _, errors, _ = sums_52[:, index].tolist()
        if count:
            found[f"value_{source}"] = (returns - errors) / count
    return found
