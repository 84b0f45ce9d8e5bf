"""The transformers engine: against `generate`, against its own batching, and the bookkeeping of ends."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch

from common.errors import InputError
from common.records import FinishReason
from data_gen.engines import StopWatch, TransformersEngine, end_token_ids, make_engine
from data_gen.kv_cache import compaction, keep_rows, new_cache, repeated
from data_gen.token_choice import filtered_logits, pick_tokens, request_seed, uniform_noise
from tests.tokenizer_toys import byte_level_tokenizer, character_tokenizer, tiny_gpt2, tiny_llama

TOKENIZER = character_tokenizer()
PROMPTS = [TOKENIZER(text)["input_ids"] for text in ("3*4=", "Compute 12-5+7.\n", "7\n", "a b c d e f g h", "(1+2)*3=")]


@pytest.fixture(scope="module")
def llama():
    return tiny_llama(TOKENIZER, scale=12.0).eval()


def sample(engine, prompts=PROMPTS, **changes):
    settings = {"n": 3, "temperature": 1.0, "max_new_tokens": 24, "seed": 5} | changes
    return engine.sample(prompts, **settings)


@pytest.mark.parametrize("build", [tiny_llama, tiny_gpt2])
def test_greedy_equals_generate(build):
    model = build(TOKENIZER).eval()
    got = sample(TransformersEngine(model, TOKENIZER), n=2, temperature=0.0)
    for prompt, (first, second) in zip(PROMPTS, got, strict=True):
        ids = torch.tensor([prompt])
        wanted = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24)
        assert list(first.token_ids) == wanted[0, len(prompt) :].tolist()
        assert first == second


def test_paths_do_not_depend_on_batch_order_or_neighbours(llama):
    whole = sample(TransformersEngine(llama, TOKENIZER))
    assert len({path.token_ids for group in whole for path in group}) > len(PROMPTS)
    assert sample(TransformersEngine(llama, TOKENIZER), PROMPTS[::-1]) == whole[::-1]
    assert sample(TransformersEngine(llama, TOKENIZER, max_rows=2)) == whole
    assert sample(TransformersEngine(llama, TOKENIZER, max_cache_tokens=70)) == whole
    for prompt, group in zip(PROMPTS, whole, strict=True):
        assert sample(TransformersEngine(llama, TOKENIZER), [prompt]) == [group]
        assert sample(TransformersEngine(llama, TOKENIZER), [prompt], n=1)[0][0] == group[0]


def test_l42_left_padding_changes_no_path_with_absolute_positions():
    engine = TransformersEngine(tiny_gpt2(TOKENIZER).eval(), TOKENIZER)
    alone = sample(engine, PROMPTS[:1])
    for pads in (3, 7):
        longer = TOKENIZER("x" * (len(PROMPTS[0]) + pads))["input_ids"]
        assert sample(engine, [PROMPTS[0], longer])[:1] == alone


def test_a_prompt_given_twice_gets_more_paths_of_the_same_sequence(llama):
    engine = TransformersEngine(llama, TOKENIZER)
    twice = sample(engine, [PROMPTS[0], PROMPTS[1], PROMPTS[0]], n=2)
    assert twice[0] + twice[2] == sample(engine, [PROMPTS[0]], n=4)[0]


def test_seed_and_path_change_what_is_sampled(llama):
    engine = TransformersEngine(llama, TOKENIZER)
    assert sample(engine) == sample(engine)
    assert sample(engine) != sample(engine, seed=6)


def test_l36_l37_sampled_end_token_is_kept_and_none_is_added(llama):
    finished = cut = 0
    for group in sample(TransformersEngine(llama, TOKENIZER), n=40):
        for path in group:
            ids = path.token_ids
            if path.finish_reason is FinishReason.STOP:
                finished += 1
                assert ids[-1] == 1
                assert 1 not in ids[:-1]
            else:
                cut += 1
                assert len(ids) == 24
                assert 1 not in ids
    assert finished > 5
    assert cut > 5


def test_l34_l35_every_end_id_ends_a_path(llama):
    plain = [p for group in sample(TransformersEngine(llama, TOKENIZER), n=20) for p in group]
    ended = [p for g in sample(TransformersEngine(llama, TOKENIZER, eos_token_ids=[1, 9, 14]), n=20) for p in g]
    for before, after in zip(plain, ended, strict=True):
        stops = [i for i, token in enumerate(before.token_ids) if token in (1, 9, 14)]
        wanted = before.token_ids[: stops[0] + 1] if stops else before.token_ids
        assert after.token_ids == wanted
        assert after.finish_reason is (FinishReason.STOP if stops else FinishReason.LENGTH)


def test_end_ids_come_from_tokenizer_and_generation_config(llama):
    llama.generation_config.eos_token_id = [1, 7]
    assert end_token_ids(llama, TOKENIZER) == (1, 7)
    llama.generation_config.eos_token_id = None
    assert end_token_ids(llama, TOKENIZER) == (1,)


def test_stop_string_ends_a_path_behind_the_token_that_completes_it(llama):
    plain = [p for group in sample(TransformersEngine(llama, TOKENIZER), n=20) for p in group]
    stopped = [p for g in sample(TransformersEngine(llama, TOKENIZER), n=20, stop=["3", "ab"]) for p in g]
    for before, after in zip(plain, stopped, strict=True):
        prefixes = [TOKENIZER.decode(before.token_ids[:k], skip_special_tokens=True) for k in range(1, 25)]
        ends = [k for k, text in enumerate(prefixes, 1) if "3" in text or "ab" in text]
        if ends:
            assert after.token_ids == before.token_ids[: ends[0]]
            assert after.finish_reason is FinishReason.STOP
        else:
            assert after == before


def test_stop_watch_sees_a_string_that_runs_over_tokens():
    tokenizer = byte_level_tokenizer()
    ids = tokenizer("it is\nUser: next")["input_ids"]
    watch = StopWatch(tokenizer, ["User:"], 2)
    flags = [watch.feed([1], [token]).item() for token in ids]
    text = ""
    for token, flag in zip(ids, flags, strict=True):
        before, text = text, text + tokenizer.decode([token])
        if "User:" in before:
            break
        assert flag == ("User:" in text)
    assert any(flags)


def test_sampled_frequencies_follow_the_distribution(llama):
    prompt = torch.tensor([PROMPTS[0]])
    with torch.no_grad():
        probs = (llama(prompt).logits[0, -1] / 0.7).softmax(-1)
    engine = TransformersEngine(llama, TOKENIZER, max_rows=4000)
    paths = sample(engine, PROMPTS[:1], n=4000, temperature=0.7, max_new_tokens=1)[0]
    counts = torch.bincount(torch.tensor([p.token_ids[0] for p in paths]), minlength=len(TOKENIZER))
    top = probs.topk(5).indices
    deviation = (counts[top] / 4000 - probs[top]).abs()
    assert (deviation < 4 * (probs[top] * (1 - probs[top]) / 4000).sqrt()).all()
    assert engine.stats.sampled_tokens == 4000
    assert engine.stats.prompt_tokens == len(PROMPTS[0])
    assert engine.stats.tokens_per_second > 0


def test_pick_tokens_inverts_the_cumulative_distribution():
    logits = torch.tensor([[0.1, 0.2, 0.0, 0.7]]).log().repeat(6, 1)
    u = torch.tensor([0.0, 0.09, 0.11, 0.29, 0.31, 1 - 2**-32], dtype=torch.float64)
    assert pick_tokens(logits, u, 1.0).tolist() == [0, 0, 1, 1, 3, 3]
    assert pick_tokens(logits, u, 0.0).tolist() == [3] * 6
    sharp = torch.tensor([[1.0, 4.0]]).log()  # at temperature 1/2: 1/17 and 16/17
    assert pick_tokens(sharp, torch.tensor([1 / 17 - 1e-6], dtype=torch.float64), 0.5).tolist() == [0]
    assert pick_tokens(sharp, torch.tensor([1 / 17 + 1e-6], dtype=torch.float64), 0.5).tolist() == [1]


def test_top_k_and_top_p_keep_what_they_say():
    logits = torch.tensor([[0.5, 0.1, 0.3, 0.1]]).log()
    assert filtered_logits(logits, 1.0, 1.0, 2).isfinite().tolist() == [[True, False, True, False]]
    assert filtered_logits(logits, 1.0, 0.5, 0).isfinite().tolist() == [[True, False, False, False]]
    assert filtered_logits(logits, 1.0, 0.6, 0).isfinite().tolist() == [[True, False, True, False]]
    assert filtered_logits(logits, 1.0, 1.0, 0).isfinite().all()


def test_noise_depends_on_seed_prompt_and_path_only():
    long, short = uniform_noise(1, [5, 6], 2, 64), uniform_noise(1, [5, 6], 2, 8)
    assert np.array_equal(long[:8], short)
    assert ((long >= 0) & (long < 1)).all()
    others = [uniform_noise(2, [5, 6], 2, 8), uniform_noise(1, [5, 7], 2, 8), uniform_noise(1, [5, 6], 3, 8)]
    assert not any(np.array_equal(short, other) for other in others)
    many = np.concatenate([uniform_noise(0, [3], path, 100) for path in range(100)])
    assert abs(many.mean() - 0.5) < 4 / math.sqrt(12 * 10_000)
    assert 0 <= request_seed(1, [5, 6], 0) < 2**31
    assert request_seed(1, [5, 6], 0) != request_seed(1, [5, 6], 1)


def test_model_keeps_its_mode_and_no_graph_is_made(llama):
    llama.train()
    sample(TransformersEngine(llama, TOKENIZER), n=1, max_new_tokens=2)
    assert llama.training
    llama.eval()
    sample(TransformersEngine(llama, TOKENIZER), n=1, max_new_tokens=2)
    assert not llama.training
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in llama.parameters())


def test_new_weights_are_seen_without_a_sync(llama):
    engine = TransformersEngine(llama, TOKENIZER)
    before = sample(engine)
    weight = llama.lm_head.weight.detach().clone()
    with torch.no_grad():
        llama.lm_head.weight.copy_(weight.flip(0))
    assert sample(engine) != before
    with torch.no_grad():
        llama.lm_head.weight.copy_(weight)
    assert sample(engine) == before


def test_compaction_fills_holes_from_behind():
    alive = torch.tensor([False, True, False, True, True])
    assert compaction(alive).tolist() == [3, 1, 4]
    assert compaction(torch.tensor([True, True])).tolist() == [0, 1]


def test_cache_rows_are_repeated_grown_and_kept():
    cache = new_cache(1, 2)
    states = torch.arange(2.0).reshape(2, 1, 1, 1).expand(2, 1, 2, 3)
    cache.update(states, states + 10, 0)
    cache = repeated(cache, torch.tensor([1, 0, 1]), 40)
    for token in range(30):  # past one step of growth
        keys, values = cache.update(torch.full((3, 1, 1, 3), 100.0 + token), torch.zeros(3, 1, 1, 3), 0)
    assert keys.shape == (3, 1, 32, 3)
    assert keys[:, 0, 0, 0].tolist() == [1, 0, 1]
    assert values[:, 0, 1, 0].tolist() == [11, 10, 11]
    assert keys[0, 0, 2:, 0].tolist() == [100.0 + token for token in range(30)]
    keep_rows(cache, compaction(torch.tensor([False, True, True])))
    assert cache.layers[0].keys[:, 0, 0, 0].tolist() == [1, 0]


@pytest.mark.parametrize(
    "change", [{"temperature": -1.0}, {"max_new_tokens": 0}, {"top_p": 0.0}, {"n": 0}, {"top_k": -1}]
)
def test_settings_out_of_range_are_refused(llama, change):
    with pytest.raises(ValueError, match="sampling"):
        sample(TransformersEngine(llama, TOKENIZER), **change)


def test_make_engine_names_what_is_wanted(llama, monkeypatch):
    assert isinstance(make_engine("transformers", llama, TOKENIZER, max_rows=8), TransformersEngine)
    with pytest.raises(ValueError, match="'transformers' or 'vllm'"):
        make_engine("magic", llama, TOKENIZER)
    monkeypatch.setitem(sys.modules, "vllm", None)  # as if it were not installed
    with pytest.raises(InputError, match=r"\[vllm\]', or choose engine 'transformers'"):
        make_engine("vllm", "somewhere", TOKENIZER)
