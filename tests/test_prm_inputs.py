"""The PRM input contract: equal ids and positions for every caller, nothing lost in silence."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from prm_support import PROMPT, STEPS, TOKENIZERS, byte_tokenizer, character_tokenizer, rollout

from common.records import IGNORED, FinishReason, LabelledPath, Path, Step, Verdict
from prm.inputs import collate, labelled_inputs, path_input, prm_input, text_input


def labelled(path: Path, labels: tuple[int, ...]) -> LabelledPath:
    return LabelledPath(path, labels, None, (0,) * len(labels), ("",) * len(labels), "test")


def three_steps(labels=None, **options):
    """Prompt of 2 tokens; steps of 3, 1 and 2 tokens with one separator after each."""
    spans = [Step("", 0, 0, 0, 3), Step("", 0, 0, 4, 5), Step("", 0, 0, 6, 8)]
    return prm_input([100, 101], list(range(10, 20)), spans, labels=labels, **options)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_text_and_rollout_give_equal_ids_and_positions(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    prompt = tokenizer(PROMPT)["input_ids"]
    from_rollout = path_input(prompt, rollout(tokenizer))
    from_text = text_input(tokenizer, prompt, STEPS, problem_id="p")
    assert from_text == from_rollout
    assert len(from_text.step_positions) == len(STEPS)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_position_is_the_last_token_that_holds_text_of_the_step(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    prompt = tokenizer(PROMPT)["input_ids"]
    one = text_input(tokenizer, prompt, STEPS)
    expected = PROMPT
    for step, position in zip(STEPS, one.step_positions, strict=True):
        expected += step
        seen = tokenizer.decode(one.token_ids[: position + 1], skip_special_tokens=True)
        # SentencePiece puts a space before each text, so also before a completion
        assert seen.replace("\n ", "\n").rstrip("\n") == expected
        expected += "\n"
    assert prompt == list(one.token_ids[: len(prompt)])


def test_newline_fusing_tokenizers_do_fuse() -> None:
    """Without this the two families above would test nothing."""
    before = TOKENIZERS["newline_with_token_before"]()
    after = TOKENIZERS["newline_with_token_after"]()
    assert ".Ċ" in before.convert_ids_to_tokens(path_input([], rollout(before)).token_ids)
    assert "Ċ7" in after.convert_ids_to_tokens(path_input([], rollout(after)).token_ids)


def test_blank_line_fused_with_the_full_stop_as_in_qwen() -> None:
    """``.\\n\\n`` is one token: it is the last of its step, and the ids are those of the whole text."""
    tokenizer = byte_tokenizer([("Ċ", "Ċ"), (".", "ĊĊ")])
    steps = ("3+4=7.", "7-5=2.", "so 12-5=7.")
    one = text_input(tokenizer, [0], steps, separator="\n\n")
    whole = tokenizer("\n\n".join(steps) + "\n\n", add_special_tokens=False)["input_ids"]
    assert list(one.token_ids) == [0, *whole]
    assert [tokenizer.decode(one.token_ids[position]) for position in one.step_positions] == [".\n\n"] * 3


def test_begin_token_appears_once() -> None:
    tokenizer = TOKENIZERS["bytes_bos"]()
    one = text_input(tokenizer, tokenizer(PROMPT)["input_ids"], STEPS)
    assert one.token_ids.count(tokenizer.bos_token_id) == 1
    assert one.token_ids[0] == tokenizer.bos_token_id


def test_positions_by_hand() -> None:
    one = three_steps()
    assert one.step_positions == (4, 6, 9)
    assert one.token_ids == (100, 101, *range(10, 18))  # ends with the last step
    assert one.dropped_steps == 0


def test_L58_every_step_gets_exactly_one_label_position() -> None:
    batch = collate([three_steps(labels=[1, 0, 0])], pad_id=0)
    assert int((batch.labels_BS != IGNORED).sum()) == 3
    with pytest.raises(ValueError, match="2 labels for 3 steps"):
        three_steps(labels=[1, 0])


@pytest.mark.parametrize(("limit", "kept"), [(10, 3), (9, 2), (7, 2), (6, 1), (5, 1), (4, 0), (1, 0)])
def test_L59_truncation_drops_steps_and_their_labels_together(limit: int, kept: int) -> None:
    whole, cut = three_steps(labels=[1, 0, 0]), three_steps(labels=[1, 0, 0], max_length=limit)
    assert cut.step_positions == whole.step_positions[:kept]
    assert cut.labels == whole.labels[:kept]
    assert cut.dropped_steps == 3 - kept
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    assert len(cut.token_ids) <= limit


def test_L60_paths_without_a_label_left_are_dropped_and_counted() -> None:
    tokenizer = character_tokenizer()
    path = rollout(tokenizer)
    items = [labelled(path, (1, 0, 0)), labelled(path, (IGNORED,) * 3)]
    kept, counts = labelled_inputs(items, {"p": [5, 6]})
    assert len(kept) == 1
    assert dataclasses.asdict(counts) == {
        "paths": 2,
        "kept_paths": 1,
        "paths_without_label": 1,
        "cut_paths": 0,
        "dropped_steps": 0,
        "right_steps": 1,
        "wrong_steps": 2,
        "ignored_steps": 0,
    }
    with pytest.raises(ValueError, match="no label is left in 2 paths"):
        labelled_inputs(items, {"p": [5, 6]}, max_length=4)


def test_L60_a_batch_without_any_label_raises_when_training() -> None:
    ignored = three_steps(labels=[IGNORED] * 3)
    collate([ignored], pad_id=0)
    with pytest.raises(ValueError, match="none of the 2 paths of this batch has a label"):
        collate([ignored, three_steps()], pad_id=0, needs_label=True)


def test_L61_labels_are_numbers_and_minus_100_stays() -> None:
    batch = collate([three_steps(labels=[1, 0, IGNORED]), three_steps(labels=[1, 1, 1])], pad_id=0)
    assert batch.labels_BS.dtype == torch.float32
    assert batch.labels_BS.tolist() == [[1, 0, -100], [1, 1, 1]]
    with pytest.raises(TypeError, match="bool"):
        three_steps(labels=[True, False, True])


def test_soft_labels_are_kept_and_others_refused() -> None:
    assert three_steps(labels=[0.9, 0.25, 1]).labels == (0.9, 0.25, 1.0)
    for bad in (1.5, -1, float("nan")):
        with pytest.raises(ValueError, match=r"wanted 0\.\.1"):
            three_steps(labels=[bad, 0, 0])


@pytest.mark.parametrize(
    ("prompt", "steps"),
    [
        ("Compute.\n", ("a kи b", "c")),
        ("What is ки?\n", ("a=1", "b=2")),
        ("Compute.\n", ("a=1", "b=2\n")),
        ("Compute.\n", ("<eos>", "Answer: 3", "<unk>")),
    ],
)
def test_L62_text_like_a_marker_changes_no_count(prompt: str, steps: tuple[str, ...]) -> None:
    tokenizer = character_tokenizer()
    one = text_input(tokenizer, tokenizer(prompt)["input_ids"], steps)
    assert len(one.step_positions) == len(steps)
    assert tokenizer.eos_token_id not in one.token_ids[len(tokenizer(prompt)["input_ids"]) :]


@pytest.mark.parametrize("bad", ["", "\n\n", "  "])
def test_L66_an_empty_step_is_refused(bad: str) -> None:
    tokenizer = character_tokenizer()
    with pytest.raises(ValueError, match="step 1 is empty"):
        text_input(tokenizer, [5], ["a=1", bad])


@pytest.mark.parametrize("span", [(-1, -1), (3, 3), (4, 2), (8, 11)])
def test_bad_spans_are_refused(span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="token span"):
        prm_input([1], range(10), [Step("", 0, 0, *span)])


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="not after the step in front"):
        prm_input([1], range(10), [Step("", 0, 0, 0, 5), Step("", 0, 0, 3, 5)])


def test_a_bad_path_is_named() -> None:
    broken = Path("p", "path-7", "x", (1,), (Step("x", 0, 1),), None, Verdict.WRONG, FinishReason.STOP)
    with pytest.raises(ValueError, match="path path-7: step 0"):
        labelled_inputs([labelled(broken, (1,))], {"p": [5]})


def test_collate_by_hand_and_padding_is_told_by_length() -> None:
    eos = 17
    long = prm_input([eos, 1], [2, 3, eos], [Step("", 0, 0, 0, 1), Step("", 0, 0, 1, 3)], labels=[1, 0])
    short = prm_input([eos], [4, 5], [Step("", 0, 0, 0, 1)], labels=[0.5])
    batch = collate([long, short], pad_id=eos)
    assert batch.input_ids_BT.tolist() == [[eos, 1, 2, 3, eos], [eos, 4, eos, eos, eos]]
    assert batch.attention_mask_BT.tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert batch.step_starts_BS.tolist() == [[2, 3], [1, 0]]
    assert batch.step_positions_BS.tolist() == [[2, 4], [1, 0]]
    assert batch.is_step_BS.tolist() == [[True, True], [True, False]]
    assert batch.labels_BS.tolist() == [[1, 0], [0.5, IGNORED]]
    # the first step of the long path is right: its one token; the soft half and the wrong step count nothing
    assert batch.right_token_weights_BT.tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    with pytest.raises(ValueError, match="no path"):
        collate([], pad_id=0)


def test_right_steps_share_their_weight_among_their_tokens() -> None:
    batch = collate([three_steps(labels=[1, 0, 0.9])], pad_id=0)
    # prompt of 2, step of 3; separator and step of 1 (wrong); separator and step of 2
    third = [pytest.approx(1 / 3)] * 3
    assert batch.right_token_weights_BT.tolist() == [[0, 0, *third, 0, 0, *third]]


def test_slow_tokenizers_are_refused() -> None:
    with pytest.raises(ValueError, match="fast tokenizer"):
        text_input(object(), [1], ["a"])
