"""The PRM's loss: masked binary cross entropy over steps. Pure; axis letters B path, S step, T token."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from common.errors import RunError
from common.records import IGNORED


class NonFiniteLoss(RunError, ValueError):
    """A logit at a counted step, or the loss, is NaN or infinite: the fit cannot go on."""


def gather_steps(
    logits_BT: Float[Tensor, "paths tokens"], step_positions_BS: Int[Tensor, "paths steps"]
) -> Float[Tensor, "paths steps"]:
    """Return the logit at each step's last token; what padded steps hold is meaningless."""
    return logits_BT.gather(1, step_positions_BS)


def is_labelled(labels_BS: Float[Tensor, "paths steps"]) -> Bool[Tensor, "paths steps"]:
    """True = the step enters the loss (its label is not ``IGNORED``)."""
    return labels_BS != IGNORED


def step_loss(
    logits_BS: Float[Tensor, "paths steps"],
    labels_BS: Float[Tensor, "paths steps"],
    *,
    steps_in_window: float | Tensor | None = None,
    wrong_weight: float = 1.0,
) -> Float[Tensor, ""]:
    """Binary cross entropy summed over labelled steps and divided by the number of labelled steps of the window.

    ``loss = 1/N * sum_s w_s * -(y_s log p_s + (1 - y_s) log(1 - p_s))``, in nats a step, where p = sigmoid(logit),
    y in [0, 1] is the label and ``w_s = y_s + wrong_weight * (1 - y_s)``. N counts steps, not weights.

    Args:
        steps_in_window: N, the number of labelled steps in ALL micro-batches (and ranks) whose gradients are summed
            before the update, so that accumulation changes nothing. None takes this batch's own number.
        wrong_weight: weight of a wrong step against a right one, > 0.

    Returns:
        A scalar; 0 with zero gradient when this batch has no labelled step but the window has.

    Raises:
        ValueError: N is 0 (the mean of nothing is NaN).
        NonFiniteLoss: a logit of a labelled step is not finite.
    """
    counted = is_labelled(labels_BS)
    window = counted.sum() if steps_in_window is None else torch.as_tensor(steps_in_window)
    if float(window) <= 0:
        raise ValueError("no labelled step in the whole window: nothing to average over")
    # select before any arithmetic: NaN * 0 is NaN, and -100 is no target
    logits, targets = logits_BS[counted].float(), labels_BS[counted].float()
    if not bool(torch.isfinite(logits).all()):
        raise NonFiniteLoss(f"{int((~torch.isfinite(logits)).sum())} of {logits.numel()} step logits are not finite")
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    losses = losses * (targets + wrong_weight * (1 - targets))
    # an empty selection still has to hang on the graph, or ranks would wait for its gradient
    return losses.sum() / window.to(losses.device) + 0.0 * logits_BS[~counted].nan_to_num(0.0, 0.0, 0.0).sum()


def token_logprobs(
    hidden_BTH: Float[Tensor, "paths tokens hidden"],
    lm_head_VH: Float[Tensor, "vocabulary hidden"],
    input_ids_BT: Int[Tensor, "paths tokens"],
) -> Float[Tensor, "paths tokens"]:
    """``log softmax(W h_{t-1})[x_t]`` in nats, <= 0; 0 for the first token, which nothing predicts."""
    states, targets = hidden_BTH[:, :-1].flatten(0, 1), input_ids_BT[:, 1:].flatten()
    size = max(1, LOGITS_AT_ONCE // lm_head_VH.shape[0])
    pieces = [
        checkpoint(_next_logprobs, states[at : at + size], lm_head_VH, targets[at : at + size], use_reentrant=False)
        if size < len(states) and states.requires_grad
        else _next_logprobs(states[at : at + size], lm_head_VH, targets[at : at + size])
        for at in range(0, len(states), size)
    ]
    logprobs = torch.cat(pieces) if pieces else states.new_zeros(0, dtype=torch.float32)
    return F.pad(logprobs.view(hidden_BTH.shape[0], -1), (1, 0))


LOGITS_AT_ONCE = 2**26
"""Logits held at a time (256 MiB): with a large vocabulary tokens go through in pieces, recomputed for gradients."""


def _next_logprobs(states: Tensor, lm_head_VH: Tensor, targets: Tensor) -> Tensor:
    return -F.cross_entropy(states.float() @ lm_head_VH.float().T, targets, reduction="none")


LOWEST_LOGPROB = -12.0
"""Nats; a token less likely than e^-12 says no more against its step than that."""


def surprise_logits(
    token_logprobs_BT: Float[Tensor, "paths tokens"],
    gates_BT: Float[Tensor, "paths tokens"],
    step_starts_BS: Int[Tensor, "paths steps"],
    step_positions_BS: Int[Tensor, "paths steps"],
) -> Float[Tensor, "paths steps"]:
    """``sum_t gate_t * max(log p(x_t | x_<t), -12)`` over the tokens t of each step: what surprise says against it.

    At most 0, in nats times the gates' scale.

    Args:
        gates_BT: >= 0, how much the surprise at each token counts; computed from what stands before the token.
        step_starts_BS, step_positions_BS: first and last token of each step.
    """
    weighted = gates_BT.double() * token_logprobs_BT.double().clamp(min=LOWEST_LOGPROB)
    before = F.pad(weighted.cumsum(1), (1, 0))  # before[:, t] is the sum over tokens in front of t
    return (before.gather(1, step_positions_BS + 1) - before.gather(1, step_starts_BS)).float()


def right_step_loss(
    token_logprobs_BT: Float[Tensor, "paths tokens"],
    right_token_weights_BT: Float[Tensor, "paths tokens"],
    *,
    steps_in_window: float | Tensor,
) -> Float[Tensor, ""]:
    """Next-token cross entropy on the steps labelled right: ``1/N * sum_t w_t * -log p(x_t | x_<t)``, nats.

    Each right step counts its mean over its own tokens (w_t = 1 / tokens of the step), so long steps weigh no more than
    short ones; N is the number of labelled steps of the window, as in ``step_loss``. It teaches the backbone how right
    steps go on, a signal at every token and not one bit a step: Yang et al. 2024 (arXiv:2406.10216), the "SFT
    regularisation" of reward models, on steps instead of answers.

    Args:
        token_logprobs_BT: see ``token_logprobs``.
        right_token_weights_BT: see ``prm.inputs.PRMBatch``.
    """
    counted = right_token_weights_BT > 0
    total = (token_logprobs_BT[counted] * right_token_weights_BT[counted]).sum()
    return -total / torch.as_tensor(steps_in_window).to(total.device)
