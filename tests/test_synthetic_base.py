"""The base model's tokenizer, batches and recipe, and the shipped weights."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_gen.base import loss_of, new_model, rate
from data_gen.base_eval import sample, split_path
from data_gen.base_rows import IGNORED_TARGET, Recipe, _collate, batches, encode, train_tokenizer
from data_gen.synthetic import Solution, completion, generate, judge, solve
from data_gen.synthetic.corpus import stream

SHIPPED = Path(__file__).parents[1] / "data_gen" / "base_model"
SMALL = Recipe(hidden=16, layers=1, heads=2, intermediate=16, level_weights={2: 1.0, 3: 1.0}, tokens_a_batch=512)


@pytest.fixture(scope="module")
def tokenizer():
    source = stream(1, SMALL.level_weights)
    return train_tokenizer([f"{t}\n{completion(s)}" for t, s in (next(source) for _ in range(300))], SMALL.vocabulary)


@pytest.fixture(scope="module")
def shipped_tokenizer():
    assert (SHIPPED / "model.safetensors").stat().st_size <= 8_000_000
    return AutoTokenizer.from_pretrained(SHIPPED)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_round_trips(tokenizer, text):
    if not any(special in text for special in tokenizer.all_special_tokens):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize("which", ["tokenizer", "shipped_tokenizer"])
def test_digits_operators_and_newlines_are_tokens_of_their_own(which, request):
    tokenizer = request.getfixturevalue(which)
    text = "12+305=317\n\n3(x-4)=9.\nAnswer: -17\n"
    pieces = [tokenizer.decode([token]) for token in tokenizer(text)["input_ids"]]
    assert "".join(pieces) == text
    for piece in pieces:
        assert len(piece) == 1 or not set(piece) & set("0123456789+-*=()\n"), piece
    assert tokenizer.padding_side == "left"
    assert tokenizer.eos_token == "<eos>"
    assert tokenizer.pad_token == "<pad>"
    assert tokenizer.eos_token_id != tokenizer.pad_token_id


def test_only_completion_tokens_are_targets(tokenizer):
    inputs, targets, weights = next(batches(SMALL, tokenizer, seed=3, habits=1.0, highest=3, chunk=64))
    assert inputs.shape == targets.shape == weights.shape
    for ids, wanted in zip(inputs, targets, strict=True):
        counts = wanted != IGNORED_TARGET
        text = tokenizer.decode(wanted[counts])
        prompt = tokenizer.decode(ids[: int(counts.nonzero()[0]) + 1])
        assert prompt.endswith((".\n", "?\n"))
        assert prompt.count("\n") == 1
        assert text.endswith("<eos>")
        assert "Answer: " in text
        assert judge(prompt.strip(), split_path(text.removesuffix("<eos>"))[0]).unknown is False
        inner = counts[:-1] & (wanted[:-1] != tokenizer.eos_token_id)
        assert torch.equal(ids[1:][inner], wanted[:-1][inner])  # targets are the inputs, one later


def test_padding_changes_no_loss(tokenizer):
    model = new_model(SMALL, tokenizer)
    row = encode(tokenizer, [("Compute 3+4-2.", solve("Compute 3+4-2."))])[0]
    assert row.error_end == len(row.ids)
    inputs, targets = torch.tensor([row.ids[:-1]]), torch.tensor([row.ids[1:]])
    targets[0, : row.prompt_length - 1] = IGNORED_TARGET
    batch = (inputs, targets, torch.ones(inputs.shape))
    padded = tuple(
        torch.nn.functional.pad(x, (0, 5), value=v) for x, v in zip(batch, (0, IGNORED_TARGET, 1), strict=True)
    )
    assert loss_of(model, padded).item() == pytest.approx(loss_of(model, batch).item(), abs=2e-3)


def test_tokens_after_the_first_wrong_step_weigh_less(tokenizer):
    solution = Solution(("3-8=5", "5+4=9"), "9", ("sign_slip_difference", None))
    row = encode(tokenizer, [("Compute 3-8+4.", solution)])[0]
    assert tokenizer.decode(row.ids[: row.error_end]) == "Compute 3-8+4.\n3-8=5\n"
    _, targets, weights = _collate([row], 40, tokenizer.pad_token_id, 0.25)
    light = targets[0][(weights[0] == 0.25) & (targets[0] != IGNORED_TARGET)]
    assert tokenizer.decode(light) == "5+4=9\nAnswer: 9<eos>"
    assert tokenizer.decode(targets[0][(weights[0] == 1) & (targets[0] != IGNORED_TARGET)]) == "3-8=5\n"


def test_rate_warms_up_and_ends_low():
    recipe = Recipe(warmup_steps=10, final_rate=0.02)
    assert rate(0.0, 0, recipe) == pytest.approx(0.1)
    assert rate(0.0, 9, recipe) == pytest.approx(1.0)
    assert rate(0.5, 99, recipe) == pytest.approx(0.51)
    assert rate(1.0, 99, recipe) == pytest.approx(0.02)


def test_shipped_base(shipped_tokenizer):
    model = AutoModelForCausalLM.from_pretrained(SHIPPED).eval()
    assert model.config.model_type == "llama"
    assert sum(p.numel() for p in model.parameters()) <= 3_000_000
    assert (SHIPPED / "model.safetensors").stat().st_size <= 8_000_000
    record = json.loads((SHIPPED / "recipe.json").read_text())
    assert set(record["recipe"]) == {field.name for field in dataclasses.fields(Recipe)}
    numbers = record["measured"]["2-6"]
    assert numbers["unknown_share_of_paths"] <= 0.02
    problems = generate("validation", 101, 40, levels=range(2, 7))
    torch.manual_seed(0)
    texts = sample(model, shipped_tokenizer, problems, 4, 1.0)
    right = [split_path(t)[1] == p.answer for p, paths in zip(problems, texts, strict=True) for t in paths]
    assert abs(sum(right) / len(right) - numbers["accuracy"]["all"]["sampled"]) < 0.15
