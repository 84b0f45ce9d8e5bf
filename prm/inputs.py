"""From (prompt ids, completion ids, steps) to what a PRM reads: THE one place that decides ids and step positions.

Training, evaluation, best-of-N and PPO all call ``prm_input``. The score of step k is read at the last token of the
step, ``len(prompt) + token_end - 1``; the model is causal, so it sees the prompt and steps 1..k and nothing later. A
rollout is scored on its own token ids: decoding and encoding again would move boundaries (LightRFT#53: 16 of 16 step
ends off by one, training still ran). Tokens after the last step (answer line, end token) can change no score and are
left out.

Axis letters: B path, S step (kept steps of a path, padded), T token (padded).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from common.records import IGNORED, LabelledPath, Path, Step


@dataclasses.dataclass(frozen=True)
class PRMInput:
    """One path as a PRM reads it.

    Attributes:
        token_ids: prompt and completion up to the last kept step, at most ``max_length`` tokens.
        step_positions: strictly increasing indices into ``token_ids``, the last token of each kept step.
        dropped_steps: number of steps lost because ``max_length`` cuts their end; they are the path's last ones.
        labels: one for each kept step, 0..1 (1 = right, soft values allowed) or ``IGNORED``; None when unlabelled.
        problem_id: what held-out splits group by.
        prompt_length: number of prompt tokens at the start of ``token_ids``; the first step begins there.
    """

    token_ids: tuple[int, ...]
    step_positions: tuple[int, ...]
    dropped_steps: int = 0
    labels: tuple[float, ...] | None = None
    problem_id: str = ""
    prompt_length: int = 0

    @property
    def step_starts(self) -> tuple[int, ...]:
        """Index of the first token of each kept step: the prompt's end, then behind the step in front."""
        return (self.prompt_length, *(position + 1 for position in self.step_positions))[: len(self.step_positions)]

    @property
    def has_label(self) -> bool:
        """True when at least one kept step enters the loss."""
        return self.labels is not None and any(label != IGNORED for label in self.labels)


@dataclasses.dataclass(frozen=True)
class PRMBatch:
    """Right-padded paths. Right padding under causal attention changes no score.

    Attributes:
        input_ids_BT: ids, padded with ``pad_id``.
        attention_mask_BT: 1 = token, 0 = padding, by length and never by id (so pad = eos is safe).
        step_starts_BS: index of each step's first token, the separator in front of it included; 0 where no step is.
        step_positions_BS: index of each step's last token; 0 where no step is.
        is_step_BS: True = a real step.
        labels_BS: 0..1 or ``IGNORED``; ``IGNORED`` where ``is_step_BS`` is False. Never bool: -100 would become True
            (trl#2127).
        right_token_weights_BT: 1 / (tokens of the step) at each token of a step labelled right (above 0.5), separator
            in front included; 0 elsewhere. Sums to the number of right steps.
    """

    input_ids_BT: Int[Tensor, "paths tokens"]
    attention_mask_BT: Int[Tensor, "paths tokens"]
    step_starts_BS: Int[Tensor, "paths steps"]
    step_positions_BS: Int[Tensor, "paths steps"]
    is_step_BS: Bool[Tensor, "paths steps"]
    labels_BS: Float[Tensor, "paths steps"]
    right_token_weights_BT: Float[Tensor, "paths tokens"]


@dataclasses.dataclass(frozen=True)
class InputCounts:
    """What became of the paths given to ``keep_labelled``; to be logged, so that nothing is lost in silence."""

    paths: int
    kept_paths: int
    paths_without_label: int
    cut_paths: int
    dropped_steps: int
    right_steps: int
    wrong_steps: int
    ignored_steps: int


def prm_input(
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    steps: Sequence[Step],
    *,
    max_length: int | None = None,
    labels: Sequence[float] | None = None,
    problem_id: str = "",
) -> PRMInput:
    """Return ids and step positions of one path.

    Args:
        prompt_ids: the prompt as it was given to the sampler, begin token included when it had one.
        completion_ids: the sampled ids, unchanged.
        steps: steps in order, with token spans into ``completion_ids``.
        max_length: longest input in tokens, None for no limit. A step whose last token does not fit is dropped, and
            so are all later ones; ``dropped_steps`` counts them and their labels go with them.
        labels: one for each of ``steps``, or None.

    Raises:
        ValueError: a step has no token span, a span lies outside the completion or ends before the step in front of
            it, the number of labels differs from the number of steps, or a label is not in [0, 1] or ``IGNORED``.
        TypeError: a label is a bool.
    """
    positions = _step_positions(len(prompt_ids), len(completion_ids), steps)
    if labels is not None:
        if len(labels) != len(steps):
            raise ValueError(f"{len(labels)} labels for {len(steps)} steps; they must match")
        labels = [_checked_label(label) for label in labels]
    limit = max_length if max_length is not None else len(prompt_ids) + len(completion_ids)
    kept = tuple(position for position in positions if position < limit)
    end = kept[-1] + 1 if kept else min(len(prompt_ids), limit)
    token_ids = (*prompt_ids, *completion_ids)[:end]
    return PRMInput(
        token_ids=tuple(int(token) for token in token_ids),
        step_positions=kept,
        dropped_steps=len(positions) - len(kept),
        labels=None if labels is None else tuple(labels[: len(kept)]),
        problem_id=problem_id,
        prompt_length=min(len(prompt_ids), end),
    )


def path_input(prompt_ids: Sequence[int], path: Path, *, max_length: int | None = None) -> PRMInput:
    """``prm_input`` of an unlabelled rollout."""
    return prm_input(prompt_ids, path.token_ids, path.steps, max_length=max_length, problem_id=path.problem_id)


def text_input(
    tokenizer: Any,
    prompt_ids: Sequence[int],
    steps: Sequence[str],
    *,
    separator: str = "\n",
    max_length: int | None = None,
    labels: Sequence[float] | None = None,
    problem_id: str = "",
) -> PRMInput:
    """``prm_input`` of a solution known as text only, e.g. a row of ProcessBench or PRM800K.

    Each step is encoded by itself with the separator on both sides as context and the pieces are joined as ids, so a
    step can neither swallow its neighbour nor turn text that looks like a special token into one. A token that holds
    separator and text belongs to the step: after it when the tokenizer fuses the separator with the token in front,
    before it when it fuses it with the token behind; either way the ids equal those of the whole text.

    Args:
        tokenizer: a fast tokenizer of ``transformers`` (character offsets are needed).
        prompt_ids: see ``prm_input``; encoded by the one function that encodes prompts for sampling.
        steps: step texts without separator.
        separator: what stood between steps in the paths the PRM was fitted on.

    Raises:
        ValueError: a step is empty or white space only (a PRM may score it high: PURE#20), or the tokenizer gives no
            offsets; and as ``prm_input``.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError("text_input needs a fast tokenizer: step ends are found by character offsets")
    ids: list[int] = []
    spans: list[Step] = []
    tail_is_separator = 0  # how many ids at the end of ``ids`` are separator and nothing else
    for index, text in enumerate(steps):
        if not text.strip():
            raise ValueError(f"step {index} is empty; wanted visible text in every step")
        piece = _encode_step(tokenizer, text, separator, has_step_before=index > 0)
        if piece.begins_with_separator:
            del ids[len(ids) - tail_is_separator :]
        start = len(ids)
        ids += piece.ids
        spans.append(Step(text, 0, len(text), start, start + piece.step_tokens))
        tail_is_separator = len(piece.ids) - piece.step_tokens
    return prm_input(prompt_ids, ids, spans, max_length=max_length, labels=labels, problem_id=problem_id)


def labelled_inputs(
    labelled: Iterable[LabelledPath], prompt_ids: Mapping[str, Sequence[int]], *, max_length: int | None = None
) -> tuple[list[PRMInput], InputCounts]:
    """Return the training inputs of labelled paths, and what was lost.

    Paths without any label left (no step, all ignored, or cut) are dropped and counted: they would train nothing.

    Args:
        labelled: the labelled paths.
        prompt_ids: ids of the prompt for each ``problem_id``.

    Raises:
        ValueError: no path has a label left, or a span or label is bad (the path's id is named).
        KeyError: a path's problem has no prompt.
    """
    inputs: list[PRMInput] = []
    for item in labelled:
        path = item.path
        try:
            one = prm_input(
                prompt_ids[path.problem_id],
                path.token_ids,
                path.steps,
                max_length=max_length,
                labels=item.labels,
                problem_id=path.problem_id,
            )
        except (ValueError, TypeError) as error:
            raise type(error)(f"path {path.path_id}: {error}") from error
        inputs.append(one)
    return keep_labelled(inputs)


def keep_labelled(inputs: Sequence[PRMInput]) -> tuple[list[PRMInput], InputCounts]:
    """Return the inputs that have a label left, and what was lost.

    Raises:
        ValueError: none of them has a label left.
    """
    kept = [one for one in inputs if one.has_label]
    cut = sum(one.dropped_steps > 0 for one in inputs)
    if not kept:
        raise ValueError(f"no label is left in {len(inputs)} paths ({cut} of them cut at the length limit)")
    labels = [label for one in kept for label in one.labels or ()]
    ignored = sum(label == IGNORED for label in labels)
    wrong = sum(label != IGNORED and label < 0.5 for label in labels)
    return kept, InputCounts(
        paths=len(inputs),
        kept_paths=len(kept),
        paths_without_label=len(inputs) - len(kept),
        cut_paths=cut,
        dropped_steps=sum(one.dropped_steps for one in inputs),
        right_steps=len(labels) - ignored - wrong,
        wrong_steps=wrong,
        ignored_steps=ignored,
    )


def collate(inputs: Sequence[PRMInput], pad_id: int, *, needs_label: bool = False) -> PRMBatch:
    """Pad paths on the right to one batch.

    Args:
        inputs: at least one path; paths without a step are allowed when ``needs_label`` is False.
        pad_id: any valid id; padding is told by length.
        needs_label: True for training: the batch must hold at least one label.

    Raises:
        ValueError: ``inputs`` is empty, or ``needs_label`` and every label is ``IGNORED``.
    """
    if not inputs:
        raise ValueError("collate was given no path")
    if needs_label and not any(one.has_label for one in inputs):
        raise ValueError(f"none of the {len(inputs)} paths of this batch has a label; it would train nothing")
    longest = max(max(len(one.token_ids) for one in inputs), 1)
    most_steps = max(len(one.step_positions) for one in inputs)
    input_ids = torch.full((len(inputs), longest), pad_id, dtype=torch.int64)
    attention_mask = torch.zeros((len(inputs), longest), dtype=torch.int64)
    starts = torch.zeros((len(inputs), most_steps), dtype=torch.int64)
    positions = torch.zeros((len(inputs), most_steps), dtype=torch.int64)
    is_step = torch.zeros((len(inputs), most_steps), dtype=torch.bool)
    labels = torch.full((len(inputs), most_steps), float(IGNORED), dtype=torch.float32)
    right_token_weights = torch.zeros((len(inputs), longest), dtype=torch.float32)
    for row, one in enumerate(inputs):
        tokens, steps = len(one.token_ids), len(one.step_positions)
        input_ids[row, :tokens] = torch.tensor(one.token_ids, dtype=torch.int64)
        attention_mask[row, :tokens] = 1
        starts[row, :steps] = torch.tensor(one.step_starts, dtype=torch.int64)
        positions[row, :steps] = torch.tensor(one.step_positions, dtype=torch.int64)
        is_step[row, :steps] = True
        if one.labels is not None:
            labels[row, :steps] = torch.tensor(one.labels, dtype=torch.float32)
            for start, position, label in zip(one.step_starts, one.step_positions, one.labels, strict=True):
                if label > 0.5:
                    right_token_weights[row, start : position + 1] = 1 / (position + 1 - start)
    return PRMBatch(input_ids, attention_mask, starts, positions, is_step, labels, right_token_weights)


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Ids of one encoded step: ``step_tokens`` ids that hold its text, then ids of pure separator."""

    ids: list[int]
    step_tokens: int
    begins_with_separator: bool


def _encode_step(tokenizer: Any, text: str, separator: str, *, has_step_before: bool) -> _Piece:
    lead = separator if has_step_before else ""
    encoded = tokenizer(
        lead + text + separator, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True
    )
    text_start, text_end = len(lead), len(lead) + len(text)
    kept = [
        (token, start, end)
        for token, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        if end > text_start
    ]
    step_tokens = sum(start < text_end for _, start, _ in kept)
    if not step_tokens:
        raise ValueError(f"the tokenizer gives no token for the step {text!r}")
    return _Piece([token for token, _, _ in kept], step_tokens, begins_with_separator=kept[0][1] < text_start)


def _step_positions(prompt_tokens: int, completion_tokens: int, steps: Sequence[Step]) -> list[int]:
    positions: list[int] = []
    for index, step in enumerate(steps):
        if not 0 <= step.token_start < step.token_end <= completion_tokens:
            raise ValueError(
                f"step {index} has token span [{step.token_start}, {step.token_end}) in a completion of "
                f"{completion_tokens} tokens; wanted a non-empty span inside it"
            )
        position = prompt_tokens + step.token_end - 1
        if positions and position <= positions[-1]:
            raise ValueError(f"step {index} ends at token {step.token_end}, not after the step in front of it")
        positions.append(position)
    return positions


def _checked_label(label: float) -> float:
    if isinstance(label, bool):
        raise TypeError("a label is a bool; wanted 0, 1, a soft value between, or IGNORED (-100)")
    if label != IGNORED and not 0 <= label <= 1:
        raise ValueError(f"label {label!r}; wanted 0..1 or {IGNORED}")
    return float(label)
