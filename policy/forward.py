"""Log-probs and entropies of sampled tokens, computed on rows that are packed to the left and trimmed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def packed_left(ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """Move the padding in front of each row behind it; ``mask_BL`` is 1 on a row's tokens, which stand in one run."""
    pads_B = mask_BL.argmax(dim=1)
    columns_BL = (torch.arange(ids_BL.size(1), device=ids_BL.device)[None, :] + pads_B[:, None]) % ids_BL.size(1)
    return ids_BL.gather(1, columns_BL)


def token_logprobs(
    model: Any, input_ids_BL: Tensor, attention_mask_BL: Tensor, num_completion: int, batch_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return log-prob and entropy, in nats, of each completion token; 0 on padding. Shapes (B, ``num_completion``).

    Rows are packed to the left, so padding stands only behind them: a causal model needs no attention mask and the
    default positions are the true ones. With a ``batch_size`` below B (passes without gradient) rows are sorted by
    length first. The model must have TRL's fused LM head: it divides logits by the sampling temperature, in chunks.

    Args:
        input_ids_BL: prompt with pads in front, then completion with pads behind. attention_mask_BL: 1 on tokens.
        num_completion: width of the completion part.
    """
    num_rows, width = input_ids_BL.shape
    ids_BL = packed_left(input_ids_BL, attention_mask_BL)
    lengths_B = attention_mask_BL.sum(dim=1)
    prompts_B = attention_mask_BL[:, : width - num_completion].sum(dim=1)
    is_sampled_BT = attention_mask_BL[:, width - num_completion :].bool()
    is_sorted = batch_size is not None and batch_size < num_rows
    order = lengths_B.argsort(stable=True) if is_sorted else torch.arange(num_rows, device=ids_BL.device)
    logprobs, entropies = [], []
    for rows in order.split(batch_size or num_rows):
        longest = int(lengths_B[rows].max())
        chunk_bl = ids_BL[rows, :longest]
        columns_l = torch.arange(longest, device=ids_BL.device)[None, :]
        is_scored_bl = (columns_l >= prompts_B[rows, None]) & (columns_l < lengths_B[rows, None])
        output = model(input_ids=chunk_bl, labels=chunk_bl.masked_fill(~is_scored_bl, -100), fused_lm_head=True)
        columns_bt = prompts_B[rows, None] - 1 + torch.arange(num_completion, device=ids_BL.device)[None, :]
        columns_bt = columns_bt.clamp(min=0, max=max(longest - 2, 0))
        logprobs.append(output.log_probs.gather(1, columns_bt))
        entropies.append(
            logprobs[-1].new_zeros(columns_bt.shape) if output.entropy is None else output.entropy.gather(1, columns_bt)
        )
    back = order.argsort()
    zeros_BT = torch.zeros(num_rows, num_completion, dtype=logprobs[0].dtype, device=ids_BL.device)
    logprobs_BT = torch.where(is_sampled_BT, torch.cat(logprobs)[back], zeros_BT)
    return logprobs_BT, torch.where(is_sampled_BT, torch.cat(entropies)[back], zeros_BT)


def state_vectors(
    backbone: Any, input_ids_BL: Tensor, attention_mask_BL: Tensor, num_completion: int, starts_BN: Tensor
) -> Tensor:
    """Return the last hidden state of the token in front of each completion position ``starts_BN``: (B, N, hidden).

    Rows are packed to the left and cut behind the last state, so under the causal mask a vector depends on the tokens
    before its position alone, whatever is padded or sampled later.

    Args:
        backbone: the model without its output head. starts_BN: 0 is the state behind the prompt.
        input_ids_BL, attention_mask_BL, num_completion: see ``token_logprobs``.

    Raises:
        ValueError: a prompt without a token has no state behind it.
    """
    prompts_B = attention_mask_BL[:, : input_ids_BL.size(1) - num_completion].sum(dim=1)
    if bool((prompts_B == 0).any()):
        raise ValueError("a prompt without a token has no state for the critic to value")
    columns_BN = prompts_B[:, None] - 1 + starts_BN
    ids_BL = packed_left(input_ids_BL, attention_mask_BL)[:, : int(columns_BN.max()) + 1]
    hidden_BLH = backbone(input_ids=ids_BL, use_cache=False).last_hidden_state
    return hidden_BLH.gather(1, columns_BN[..., None].expand(-1, -1, hidden_BLH.size(-1)))
