"""Cutting, token spans on sampled ids, the answer span, and paths."""

from __future__ import annotations

import json
import time
from pathlib import Path as FilePath

import pytest
import torch

from common.records import FinishReason, Problem, Step, Verdict
from data_gen.cutting import cut_spans, protected_spans
from data_gen.rows import cut_rows
from data_gen.steps import (
    answer_token_start,
    build_path,
    build_paths,
    clean_step,
    cut_steps,
    locate_steps,
    path_from_text,
    separator_mask,
    text_end,
)
from data_gen.token_spans import decode_text, piece_table, token_char_spans
from tests.tokenizer_toys import byte_level_tokenizer, character_tokenizer, sentencepiece_tokenizer

CASES = [json.loads(line) for line in (FilePath(__file__).parent / "cases/steps.jsonl").open(encoding="utf-8")]
PROBLEM = Problem.create("Compute 3*4+1.", "13", source="test", topic="chain")
TOKENIZERS = {
    "characters": character_tokenizer(),
    "bytes": byte_level_tokenizer(),
    "bytes that fuse '.\\n\\n'": byte_level_tokenizer([("Ċ", "Ċ"), (".", "ĊĊ"), ("1", "2")]),
    "bytes that fuse the newline with what follows": byte_level_tokenizer([("Ċ", "T"), ("h", "e")]),
    "sentencepiece": sentencepiece_tokenizer(),
}


def texts_of(text: str) -> list[str]:
    return [step.text for step in cut_steps(text)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_collected_case(case):
    steps = cut_steps(case["text"])
    assert [clean_step(step.text) for step in steps] == case["steps"]
    assert all(case["text"][step.start : step.end] == step.text for step in steps)


def test_there_are_cases():
    assert len(CASES) >= 20


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        (" \n\n \t\n", []),
        ("a = 1\r\n\r\nb = 2", ["a = 1", "b = 2"]),
        ("3*4=12\n12-5=7", ["3*4=12", "12-5=7"]),
        ("1) a\n2) b\nso c", ["1) a", "2) b\nso c"]),
        ("2. a\n3. b\n\nc", ["2. a\n3. b", "c"]),
        ("<think>\na = 1\n</think>\n\nb = 2<|im_end|>", ["a = 1", "b = 2"]),
        ("It costs $5.\n\nThe rest is $6.", ["It costs $5.", "The rest is $6."]),
        ("Let \\[ a\n\nb \\] be.\n\nDone.", ["Let \\[ a\n\nb \\] be.", "Done."]),
        ("Step 1: a\n\nb\n\nStep 2: c", ["Step 1: a\n\nb", "Step 2: c"]),
        ("Intro.\nStep 1: a\nStep 2: b", ["Intro.", "Step 1: a", "Step 2: b"]),
        ("We get 3.5. So 4. Then 5.", ["We get 3.5. So 4. Then 5."]),
        ("a\n\n### End", ["a"]),
    ],
)
def test_cut(text, wanted):
    assert texts_of(text) == wanted


def test_nested_environments_and_unclosed_regions_are_protected():
    text = "\\begin{a}\\begin{a}\\end{a} x \\end{a} y $z$ \\( w"
    spans = [text[start:end] for start, end in protected_spans(text)]
    assert spans == ["\\begin{a}\\begin{a}\\end{a} x \\end{a}", "$z$", "\\( w"]


@pytest.mark.parametrize("unit", ["a = 1. ", "$ ", "\\( ", "x\n", "\\begin{a}", "<think>", "1. a\n", "Step 1\n", " "])
def test_cutting_140_000_characters_takes_linear_time(unit):
    text = unit * (140_000 // len(unit))
    started = time.process_time()
    spans = cut_spans(text + "x")
    assert time.process_time() - started < 3
    assert all(start < end for start, end in spans)


SAMPLES = ["First, 3 * 4 = 12.\n\nThen 12 + 1 = 13.\nAnswer: 13", "x=1\n\n\nThe rest.", "a", ""]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", SAMPLES)
def test_token_spans_tile_the_decoded_text(name, text):
    tokenizer = TOKENIZERS[name]
    ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    decoded = decode_text(ids, tokenizer)
    spans = token_char_spans(ids, tokenizer)
    assert decoded == text
    assert "".join(decoded[start:end] for start, end in spans) == decoded
    assert spans[-1] == (len(text), len(text))


@pytest.mark.parametrize("name", ["bytes", "bytes that fuse '.\\n\\n'", "sentencepiece"])
def test_tokens_that_share_a_character_all_get_it(name):
    tokenizer = TOKENIZERS[name]
    text = "ab €12. 数学"
    ids = tokenizer(text)["input_ids"]
    spans = token_char_spans(ids, tokenizer)
    euro = [i for i, span in enumerate(spans) if span == (3, 4)]
    assert len(euro) >= 2
    assert euro == list(range(euro[0], euro[-1] + 1))
    covered = {c for start, end in spans for c in range(start, end)}
    assert covered == set(range(len(text)))
    assert [s for s, _ in spans] == sorted(s for s, _ in spans)


def test_a_completion_cut_within_a_character_has_spans():
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer("12 €")["input_ids"][:-1]
    text = decode_text(ids, tokenizer)
    spans = token_char_spans(ids, tokenizer)
    assert spans[:3] == [(0, 1), (1, 2), (2, 3)]
    assert all(0 <= start <= end <= len(text) for start, end in spans)


def test_l41_ids_that_no_encoder_gives_keep_their_own_spans():
    """Sampled "he" + "llo": encoding the text again would give other ids."""
    tokenizer = byte_level_tokenizer([("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo")])
    ids = tokenizer.convert_tokens_to_ids(["he", "llo"])
    assert tokenizer("hello")["input_ids"] != ids
    assert token_char_spans(ids, tokenizer) == [(0, 2), (2, 5)]
    path = build_path(PROBLEM, [*ids, 1], FinishReason.STOP, tokenizer, seed=0, index=0)
    assert path.token_ids == (*ids, 1)
    assert [(step.token_start, step.token_end) for step in path.steps] == [(0, 2)]


def test_sentencepiece_pieces_keep_the_space_that_decoding_alone_drops():
    tokenizer = TOKENIZERS["sentencepiece"]
    ids = tokenizer("So the answer")["input_ids"]
    assert "".join(piece_table(tokenizer)[i] for i in ids).strip() == "So the answer"
    inner = next(i for i, token in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True) if token.startswith("▁"))
    assert piece_table(tokenizer)[inner].startswith(" ")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_step_tokens_hold_the_steps_text_and_end_with_it(name):
    tokenizer = TOKENIZERS[name]
    ids = [*tokenizer(SAMPLES[0])["input_ids"], tokenizer.eos_token_id]
    path = build_path(PROBLEM, ids, FinishReason.STOP, tokenizer, seed=0, index=0)
    spans = token_char_spans(ids, tokenizer)
    assert [step.text for step in path.steps] == ["First, 3 * 4 = 12.", "Then 12 + 1 = 13."]
    assert path.verdict is Verdict.CORRECT
    for step in path.steps:
        held = path.text[spans[step.token_start][0] : spans[step.token_end - 1][1]]
        assert held.strip() == step.text
        assert spans[step.token_end - 1][0] < step.end  # the last token holds text of the step
    assert path.steps[0].token_end <= path.steps[1].token_start


def test_a_token_of_two_steps_belongs_to_the_first():
    steps = [Step("abc", 0, 3), Step("def", 4, 7), Step("g", 8, 9)]
    spans = [(0, 2), (2, 5), (5, 7), (7, 9), (9, 9)]
    located = locate_steps(steps, spans)
    assert [(s.token_start, s.token_end) for s in located] == [(0, 2), (2, 3), (3, 4)]
    shared = locate_steps([Step("a", 0, 1), Step("b", 2, 3)], [(0, 3)])
    assert [(s.token_start, s.token_end) for s in shared] == [(0, 1), (0, 1)]
    with pytest.raises(ValueError, match="held by no token"):
        locate_steps([Step("x", 5, 6)], [(0, 5)])


def test_answer_line_is_no_step_and_gives_the_answer():
    tokenizer = TOKENIZERS["characters"]
    text = "3*4=12\n12+1=13\nAnswer: 13"
    path = build_path(PROBLEM, tokenizer(text)["input_ids"], FinishReason.STOP, tokenizer, seed=0, index=0)
    assert [step.text for step in path.steps] == ["3*4=12", "12+1=13"]
    assert path.answer == "13"
    only = build_path(PROBLEM, tokenizer("Answer: 13")["input_ids"], FinishReason.STOP, tokenizer, seed=0, index=0)
    assert only.steps == ()
    gsm = path_from_text(PROBLEM, "He has 12.\nIn all 12+1 = 13.\n#### 13", 0)
    assert [step.text for step in gsm.steps] == ["He has 12.", "In all 12+1 = 13."]
    boxed = path_from_text(PROBLEM, "We add 12 and 1.\n\nSo it is $\\boxed{13}$.", 0)
    assert [step.text for step in boxed.steps] == ["We add 12 and 1.", "So it is $\\boxed{13}$."]
    alone = path_from_text(PROBLEM, "We add 12 and 1.\n\n$$\\boxed{13}$$", 0)
    assert [step.text for step in alone.steps] == ["We add 12 and 1."]


def test_answer_span_in_tokens():
    tokenizer = TOKENIZERS["characters"]
    text = "3*4=12\nAnswer: 12"
    ids = [*tokenizer(text)["input_ids"], 1]
    assert answer_token_start(ids, tokenizer) == text.index("Answer")
    reasoning = [*tokenizer("3*4=12\nso on and on")["input_ids"], 1]
    assert answer_token_start(reasoning, tokenizer) == len(reasoning)
    assert answer_token_start([1], tokenizer) == 1
    long = [*tokenizer("\\boxed{12}" + " ab" * 60)["input_ids"], 1]
    assert answer_token_start(long, tokenizer) == len(long)  # more than 64 tokens: nothing is spared
    short = [*tokenizer("we \\boxed{12}" + "." * 53)["input_ids"], 1]
    assert answer_token_start(short, tokenizer) == 3
    assert len(short) - 3 == 64


def test_answer_span_starts_at_a_token_fused_with_the_newline():
    tokenizer = byte_level_tokenizer([("Ċ", "A")])
    ids = tokenizer("1=1\nAnswer: 1")["input_ids"]
    assert answer_token_start(ids, tokenizer) == 3
    fused = byte_level_tokenizer([("1", "Ċ"), ("1Ċ", "A")])
    assert answer_token_start(fused("1=1\nAnswer: 1")["input_ids"], fused) == 3  # "1\nA" holds text of the step


def test_separator_mask_is_true_for_white_space_only():
    tokenizer = TOKENIZERS["bytes that fuse '.\\n\\n'"]
    ids = [*tokenizer("a \n\n.\n\nb")["input_ids"], 1, 0]
    assert separator_mask(ids, tokenizer).tolist() == [False, True, True, False, False, False, False]
    matrix = torch.tensor([ids, ids])
    assert separator_mask(matrix, tokenizer).shape == matrix.shape


def test_l31_end_tokens_have_no_text_when_pad_is_the_end_token():
    tokenizer = character_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    ids = [*tokenizer("1=1")["input_ids"], 1]
    path = build_path(PROBLEM, ids, FinishReason.STOP, tokenizer, seed=0, index=0)
    assert path.token_ids == tuple(ids)
    assert (path.steps[0].token_start, path.steps[0].token_end) == (0, 3)


def test_l38_text_behind_a_stop_string_is_not_read():
    tokenizer = TOKENIZERS["characters"]
    text = "2+2=4\n\\boxed{4}\nUser: next?\n\\boxed{9}"
    ids = tokenizer(text)["input_ids"]
    four = Problem.create("2+2", "4", source="test", topic="t")
    path = build_path(four, ids, FinishReason.STOP, tokenizer, seed=0, index=0, stop=["User:"])
    assert (path.answer, path.verdict) == ("4", Verdict.CORRECT)
    assert path.token_ids == tuple(ids)
    assert path.text == text[: text.index("User:")]
    assert text_end("abc", []) == 3
    assert text_end("a stop b end", ["end", "stop"]) == 2


def test_l05_one_verdict_a_path_in_order():
    tokenizer = TOKENIZERS["characters"]
    texts = ["Answer: 13", "I do not know.", "Answer: 13", "", "Answer: 13"]
    sampled = [(tokenizer(text)["input_ids"] + [1], FinishReason.STOP) for text in texts]
    paths = build_paths([PROBLEM] * 5, sampled, tokenizer, seed=0, indices=range(5))
    right, none = Verdict.CORRECT, Verdict.UNPARSED
    assert [path.verdict for path in paths] == [right, none, right, none, right]
    assert len({path.path_id for path in paths}) == 5
    assert paths[0].answer == "13"


def test_l08_a_grader_replaces_ours_and_must_give_one_verdict_each():
    tokenizer = TOKENIZERS["characters"]
    sampled = [(tokenizer("Answer: 13")["input_ids"], FinishReason.STOP)]
    wrong = build_paths([PROBLEM], sampled, tokenizer, seed=0, indices=[0], grader=lambda pairs: [Verdict.WRONG])
    assert wrong[0].verdict is Verdict.WRONG  # equal text does not overrule it
    with pytest.raises(ValueError, match="one each"):
        build_paths([PROBLEM], sampled, tokenizer, seed=0, indices=[0], grader=lambda pairs: [])


def test_400_paths_of_80_tokens_are_built_in_a_blink():
    tokenizer = TOKENIZERS["characters"]
    lines = [f"{k}*{k + 1}={k * (k + 1)}" for k in range(3, 11)]
    sampled = []
    for k in range(400):
        text = "\n".join([*lines, f"{k}+1={k + 1}", f"Answer: {k}"])
        sampled.append((tokenizer(text)["input_ids"] + [1], FinishReason.STOP))
    problems = [PROBLEM] * 400
    build_paths(problems[:1], sampled[:1], tokenizer, seed=0, indices=[0])
    started = time.process_time()
    paths = build_paths(problems, sampled, tokenizer, seed=0, indices=range(400))
    assert time.process_time() - started < 1.0  # 0.04 s on an idle core
    assert {len(path.steps) for path in paths} == {9}


def test_command_line(tmp_path, capsys):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps({"id": 1, "text": "a\r\nb\n\nc</think>"}) + "\n")
    assert cut_rows(["--input", str(rows), "--output", str(out)]) == 0
    assert json.loads(out.read_text()) == {"id": 1, "text": "a\r\nb\n\nc</think>", "steps": ["a\nb", "c"]}
    rows.write_text(json.dumps({"text": 3}) + "\n")
    out.unlink()
    assert cut_rows(["--input", str(rows), "--output", str(out)]) == 2
    assert "row 1, field 'text': 3, want text" in capsys.readouterr().err
    assert not out.exists()
