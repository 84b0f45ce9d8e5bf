"""vLLM for real, on a CPU: the data stage, the engine's contract, weights that follow the policy's, PPO beside it.

Run by ``make test-vllm``, in an environment of its own. The engine itself is asserted: a silent fallback to
transformers would pass each of the numbers.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib

import pytest
import torch
from policy_toys import toy_model, toy_tokenizer

from common.adapters import plain_weights, with_adapter
from common.config import LoraSection, load_config
from common.errors import InputError
from common.models import load_policy, load_tokenizer, locate
from common.prompts import PromptTemplate
from common.records import FinishReason, Path
from common.runs import read_records
from data_gen import __main__ as data_stage
from data_gen.engines import TransformersEngine, make_engine
from data_gen.problems import ProblemSource, load_problems
from policy.sampler import ColocatedSampler
from policy.train import build_trainer

PROJECT = pathlib.Path(__file__).parent.parent
MODEL = str(PROJECT / "data_gen/base_model")  # head_dim 32, tied embeddings
MICRO = str(PROJECT / "configs/micro.yaml")
GAP = 1e-2
"""Bound of the log-prob difference after a sync, nats; float32, so what was seen is a thousand times smaller."""
pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vllm is not installed, the engine was not run: make test-vllm installs it and runs these",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def small_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        yield


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MODEL)


@pytest.fixture(scope="module")
def prompts(tokenizer):
    template = PromptTemplate.from_config(load_config(MICRO).base)
    problems = load_problems(ProblemSource("synthetic", (2, 3), ()), "train", 0, 6)
    return [list(template.ids(problem.text, tokenizer)) for problem in problems]


@pytest.fixture(scope="module")
def engine(tokenizer):
    import vllm

    built = make_engine("vllm", MODEL, tokenizer, max_rows=32, dtype="float32", is_synced=True, max_model_len=256)
    assert isinstance(built.llm, vllm.LLM)
    assert built.llm.llm_engine.model_config.dtype is torch.float32
    return built


def ids_of(groups):
    return [[path.token_ids for path in group] for group in groups]


def difference(engine, prompts, model, temperature=1.0):
    """Largest abs difference of the engine's log-probs from those of ``model``, nats, over 8 paths a prompt."""
    found = []
    groups = engine.sample(prompts, n=8, temperature=temperature, max_new_tokens=40, seed=3)
    for prompt, group in zip(prompts, groups, strict=True):
        for path in group:
            ids = torch.tensor([[*prompt, *path.token_ids]])
            with torch.no_grad():
                logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
            wanted = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
            found.append((wanted - torch.tensor(path.logprobs)).abs().max())
    return float(torch.stack(found).max())


def disturbed(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    return model


def test_contract_of_an_engine(engine, prompts, tokenizer):
    """Ids, ends, seeds and stop strings as the transformers engine's; greedy the very same ids."""
    settings = {"n": 3, "temperature": 1.0, "max_new_tokens": 40, "seed": 5}
    model = load_policy(MODEL)
    own = TransformersEngine(model, tokenizer)
    greedy = settings | {"temperature": 0.0}
    assert ids_of(engine.sample(prompts, **greedy)) == ids_of(own.sample(prompts, **greedy))
    found = engine.sample(prompts, **settings)
    assert engine.sample(prompts, **settings) == found
    assert engine.sample(prompts, **settings | {"seed": 6}) != found
    assert ids_of(engine.sample(prompts[:1], **settings)) == ids_of(found[:1])  # whatever else is in the batch
    assert len({path for group in ids_of(found) for path in group}) > len(prompts)
    once, again = ids_of(engine.sample([prompts[0], prompts[0]], **settings | {"temperature": 2.0}))
    assert once != again
    for group in found:
        for path in group:
            ends = [token == tokenizer.eos_token_id for token in path.token_ids]
            assert not any(ends[:-1])
            assert ends[-1] if path.finish_reason is FinishReason.STOP else len(ends) == 40
    stopped = engine.sample(prompts, stop=("\n",), **settings)
    for group in stopped:
        for path in group:
            text = tokenizer.decode(path.token_ids, skip_special_tokens=False)
            assert "\n" not in tokenizer.decode(path.token_ids[:-1], skip_special_tokens=False)
            assert ("\n" in text or path.token_ids[-1] == tokenizer.eos_token_id) == (
                path.finish_reason is FinishReason.STOP
            )
    assert {"\n" in tokenizer.decode(path.token_ids) for group in stopped for path in group} == {True}


def test_log_probs_follow_the_weights_and_without_a_sync_they_do_not(engine, prompts, capfd):
    engine.update_weights(load_policy(MODEL))
    seen = {"start": difference(engine, prompts, load_policy(MODEL)), "T=0.7": 0.0}
    seen["T=0.7"] = difference(engine, prompts, load_policy(MODEL), temperature=0.7)
    for round_index in (1, 2):
        changed = disturbed(load_policy(MODEL), round_index)
        seen[f"not synced {round_index}"] = difference(engine, prompts, changed)
        engine.update_weights(changed)
        seen[f"synced {round_index}"] = difference(engine, prompts, changed)
        greedy = {"n": 1, "temperature": 0.0, "max_new_tokens": 20, "seed": 0}
        own = TransformersEngine(changed, engine.tokenizer)
        assert ids_of(engine.sample(prompts, **greedy)) == ids_of(own.sample(prompts, **greedy))
    with capfd.disabled():
        print("\nlargest log-prob difference, nats: " + ", ".join(f"{name} {gap:.1e}" for name, gap in seen.items()))
    for name, gap in seen.items():
        assert (gap > 0.1) if name.startswith("not synced") else (gap < GAP), (name, gap)


def test_an_adapter_reaches_the_engine_merged(engine, prompts):
    policy = with_adapter(load_policy(MODEL), LoraSection(rank=2), "CAUSAL_LM", seed=0)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2, generator=torch.Generator().manual_seed(len(name)))
    engine.update_weights(load_policy(MODEL))
    assert difference(engine, prompts, policy) > 0.1
    engine.update_weights(policy)
    assert difference(engine, prompts, policy) < GAP
    assert dict(plain_weights(policy)).keys() == dict(load_policy(MODEL).named_parameters()).keys()


def test_a_head_size_without_a_kernel_is_refused_in_one_line(tmp_path):
    toy_model().save_pretrained(tmp_path)
    toy_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"head_dim 16 is not served by vLLM on a CPU \(it has 32, 64"):
        make_engine("vllm", str(tmp_path), toy_tokenizer())


@pytest.fixture
def no_fallback(monkeypatch):
    """A transformers engine that is built anywhere ends the test."""

    def refuse(*_, **__):
        raise AssertionError("a transformers engine was built")

    monkeypatch.setattr("data_gen.engines.TransformersEngine", refuse)


def test_data_stage(tmp_path, no_fallback):
    small = "data.pool=12 data.validation=2 data.test=2 data.measure_paths=2 data.paths=4 data.chunk=8"
    run = ["--config", MICRO, "--run", str(tmp_path), "data.engine=vllm", "data.max_batch_rows=32", *small.split()]
    assert data_stage.main([*run, "data.pass_low=0", "data.pass_high=1"]) == 0
    assert data_stage.vllm_engine.cache_info().currsize == 1
    sampled = data_stage.vllm_engine(locate("data_gen/base_model"), "float32", 32).stats.sampled_tokens
    paths = read_records(tmp_path / "round-0/1_sample/paths.jsonl", Path.from_row)
    assert len(paths) == 48
    assert sum(len(path.token_ids) for path in paths) == sampled
    assert (tmp_path / "round-0/2_label/DONE").is_file()
    assert any(path.verdict.value == "CORRECT" for path in paths)


def trained(tmp_path, *changes):
    """Three generation batches of PPO on the outcome, micro configuration, at a learning rate that shows."""
    small = "ppo.problems=4 ppo.paths=4 ppo.micro_batch=8 ppo.batches=3 ppo.eval_every=3 ppo.difficulty_bands=1"
    fixed = ["ppo.engine=vllm", "ppo.learning_rate=3e-3", "data.max_new_tokens=48", "data.max_batch_rows=32"]
    config = load_config(MICRO, [*fixed, *small.split(), "ppo.kl_cap=100", *changes])
    source, notes = ProblemSource("synthetic", (2, 3), ()), []
    trainer, _ = build_trainer(
        config,
        start=MODEL,
        problems=load_problems(source, "train", 0, 12),
        checked=load_problems(source, "validation", 0, 4),
        score=None,
        process_weight=0.0,
        folder=tmp_path / "checkpoints",
        announce=lambda update, line: notes.append(line),
    )
    import vllm

    assert isinstance(trainer.sampler, ColocatedSampler)
    assert isinstance(trainer.sampler.engine.llm, vllm.LLM)
    start = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    moved = max(float((weight - start[name]).abs().max()) for name, weight in trainer.model.named_parameters())
    assert moved > 1e-3
    return trainer, notes, [row for row in trainer.state.log_history if "sampling/logp_difference" in row]


def test_ppo_beside_the_engine(tmp_path, no_fallback, capfd):
    trainer, notes, rows = trained(tmp_path)
    with capfd.disabled():
        print("\nmean log-prob difference, nats:", [f"{row['sampling/logp_difference']:.1e}" for row in rows])
    assert len(rows) == 3
    assert max(row["sampling/max_logp_difference"] for row in rows) < GAP
    assert all(row["sampling/importance_ratio"] == pytest.approx(1, abs=1e-3) for row in rows)
    assert trainer.state.log_history[-2]["eval_accuracy"] >= 0
    assert not [note for note in notes if note.startswith("sampler_mismatch")]


def test_ppo_with_the_sync_switched_off_is_found_and_ended(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(ColocatedSampler, "update_weights", lambda self, model: None)
    trainer, notes, rows = trained(tmp_path)
    with capfd.disabled():
        print("\nwithout the sync:", [f"{row['sampling/logp_difference']:.1e}" for row in rows])
    assert rows[0]["sampling/logp_difference"] < GAP
    assert min(row["sampling/logp_difference"] for row in rows[1:]) > 0.1
    assert any(note.startswith("sampler_mismatch: ") and "action: rollback" in note for note in notes)
    assert trainer.stopped_by.startswith("sampler_mismatch")


def test_the_trainer_keeps_its_process_to_itself():
    """The engines above ran in this process, and left the variables of a launcher alone."""
    assert os.environ.get("WORLD_SIZE", "1") == "1"
    assert "LOCAL_RANK" not in os.environ
