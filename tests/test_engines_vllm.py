"""The vLLM engine against a stand-in for the package: what is asked of it, and what is made of its answer.

The package itself runs in ``tests/test_vllm.py``.
"""

from __future__ import annotations

import dataclasses
import sys
import types

import pytest
import torch
from policy_toys import toy_model

from common.errors import InputError, RunError
from common.records import FinishReason
from data_gen.engines import Completion, make_engine
from tests.tokenizer_toys import character_tokenizer


@dataclasses.dataclass
class Output:
    token_ids: list[int]
    finish_reason: str
    logprobs: list[dict[int, types.SimpleNamespace]] | None


@dataclasses.dataclass
class Request:
    outputs: list[Output]


class OwnModel(torch.nn.Module):
    """vLLM's module: takes weights by name, except those in ``deaf``, and says which it took."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = toy_model(seed=5)
        self.deaf: set[str] = set()

    def named_parameters(self, *_, **__):
        return self.inner.named_parameters()

    @torch.no_grad()
    def load_weights(self, weights):
        own, taken = dict(self.inner.named_parameters()), set()
        for name, weight in weights:
            if name not in self.deaf:
                own[name].copy_(weight)
                taken.add(name)
        return taken


class StandIn:
    """Answers every request with its own number, a stop at path 0 and the length limit at the others."""

    def __init__(self, **settings):
        if settings["max_num_seqs"] < 1:
            raise ValueError("max_num_seqs must be positive,\n got 0")
        self.settings = settings
        self.calls = []
        self.resets = 0
        self.reason = "length"
        self.own = OwnModel()

    def generate(self, prompts, parameters, use_tqdm):
        self.calls.append((prompts, parameters))
        return [Request([self._output(i, j, p) for j in range(p.n)]) for i, p in enumerate(parameters)]

    def _output(self, i, j, asked):
        logprobs = None
        if asked.logprobs == 0:
            logprobs = [{token: types.SimpleNamespace(logprob=-1.0 - place)} for place, token in enumerate([i, j])]
        return Output([i, j], "stop" if j == 0 else self.reason, logprobs)

    def apply_model(self, change):
        return [change(self.own)]

    def reset_prefix_cache(self):
        self.resets += 1


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Stand-in for the package on a GPU; ``build`` makes an engine for a saved toy."""
    package = types.ModuleType("vllm")
    package.LLM = StandIn
    package.SamplingParams = lambda **settings: types.SimpleNamespace(**settings)
    platforms = types.ModuleType("vllm.platforms")
    platforms.current_platform = types.SimpleNamespace(is_cpu=lambda: False)
    package.platforms = platforms
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    toy_model().save_pretrained(tmp_path)
    package.folder = str(tmp_path)
    package.build = lambda **settings: make_engine("vllm", package.folder, character_tokenizer(), **settings)
    return package


@pytest.fixture
def engine(package):
    return package.build(max_rows=64, dtype="float32")


def test_requests_and_results(engine, package):
    assert engine.llm.settings == {
        "model": package.folder,
        "max_num_seqs": 64,
        "dtype": "float32",
        "max_model_len": None,
        "logprobs_mode": "processed_logprobs",
        "distributed_executor_backend": "uni",
    }
    sampled = engine.sample([[5], [6], [5]], n=2, temperature=0.7, max_new_tokens=9, seed=3, stop=["User:"])
    assert sampled[1] == [Completion((1, 0), FinishReason.STOP), Completion((1, 1), FinishReason.LENGTH)]
    prompts, parameters = engine.llm.calls[0]
    assert prompts == [{"prompt_token_ids": [5]}, {"prompt_token_ids": [6]}, {"prompt_token_ids": [5]}]
    first = parameters[0]
    assert (first.n, first.temperature, first.max_tokens, first.top_p, first.top_k) == (2, 0.7, 9, 1.0, -1)
    assert (first.stop, first.include_stop_str_in_output, first.stop_token_ids) == (["User:"], True, [1])
    assert first.logprobs is None
    assert len({p.seed for p in parameters}) == 3  # the same prompt twice gets other paths
    engine.sample([[6]], n=2, temperature=0.7, max_new_tokens=9, seed=3)
    assert engine.llm.calls[1][1][0].seed == parameters[1].seed  # whatever else is in the batch
    assert engine.stats.sampled_tokens == 12 + 4


def test_greedy_asks_once(engine):
    sampled = engine.sample([[5]], n=3, temperature=0.0, max_new_tokens=9, seed=3)
    assert engine.llm.calls[0][1][0].n == 1
    assert sampled == [[Completion((0, 0), FinishReason.STOP)] * 3]


def test_given_up_requests_are_no_paths(engine):
    engine.llm.reason = "abort"
    with pytest.raises(RuntimeError, match="'abort'"):
        engine.sample([[5]], n=2, temperature=1.0, max_new_tokens=9, seed=3)


def test_a_synced_engine_gives_the_log_prob_of_each_sampled_id(package):
    synced = package.build(is_synced=True, memory=0.4, max_model_len=32)
    assert synced.llm.settings["gpu_memory_utilization"] == 0.4
    (paths,) = synced.sample([[5]], n=2, temperature=1.0, max_new_tokens=9, seed=3)
    assert paths[1] == Completion((0, 1), FinishReason.LENGTH, (-1.0, -2.0))


def test_new_weights_empty_the_prefix_cache(engine):
    policy = toy_model(seed=1)
    engine.update_weights(policy)
    assert engine.llm.resets == 1
    for name, weight in policy.named_parameters():
        assert torch.equal(weight, dict(engine.llm.own.named_parameters())[name])


def test_a_weight_that_the_engine_does_not_take_ends_the_run(engine):
    engine.llm.own.deaf = {"lm_head.weight"}
    with pytest.raises(RunError, match=r"vLLM kept its old lm_head\.weight \(1 weights\)"):
        engine.update_weights(toy_model(seed=1))
    assert engine.llm.resets == 0


def test_ranks_of_a_launcher_each_have_an_engine(package, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert package.build().llm.settings["distributed_executor_backend"] == "external_launcher"


def on_cpu(package, monkeypatch, head_sizes, operators):
    """Turn the stand-in into vLLM on a CPU."""
    package.platforms.current_platform.is_cpu = lambda: True
    backend = types.ModuleType("cpu_attn")
    backend.CPUAttentionBackend = types.SimpleNamespace(get_supported_head_sizes=lambda: head_sizes)
    package._custom_ops = operators
    for name in ("vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.v1.attention.backends.cpu_attn", backend)
    monkeypatch.setitem(sys.modules, "vllm._custom_ops", operators)


def test_on_a_cpu_packing_is_off_where_weights_change_and_nowhere_else(package, monkeypatch):
    operators = types.ModuleType("vllm._custom_ops")
    operators._supports_onednn = True
    on_cpu(package, monkeypatch, [16, 32], operators)
    settings = package.build().llm.settings
    assert operators._supports_onednn is True
    assert (settings["enforce_eager"], settings["gpu_memory_utilization"]) == (True, 0.3)
    package.build(is_synced=True)
    assert operators._supports_onednn is False
    del operators._supports_onednn
    with pytest.raises(InputError, match=r"no switch for packed matrices.*ppo\.engine=transformers"):
        package.build(is_synced=True)


def test_what_vllm_cannot_do_is_refused_by_name(package, monkeypatch):
    with pytest.raises(InputError, match=r"up to 257 tokens do not fit its 256 positions.*data\.max_new_tokens"):
        package.build(max_model_len=257)
    with pytest.raises(InputError, match=r"vLLM does not start with .*: max_num_seqs must be positive, got 0$"):
        package.build(max_rows=0)
    package.folder = "nowhere/at-all"
    with pytest.raises(InputError, match="nowhere/at-all: no model for vLLM to load"):
        package.build()


def test_head_size_without_a_kernel_is_refused_on_a_cpu_alone(package, monkeypatch):
    assert package.build() is not None  # head_dim 16
    on_cpu(package, monkeypatch, [32, 64], types.ModuleType("vllm._custom_ops"))
    with pytest.raises(
        InputError, match=r"head_dim 16 is not served .* \(it has 32, 64\); choose engine 'transformers'"
    ):
        package.build()


def test_an_installation_that_is_broken_is_not_called_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))  # no package: no vllm.platforms
    with pytest.raises(ModuleNotFoundError, match=r"vllm\.platforms"):
        make_engine("vllm", "nowhere", character_tokenizer())
