"""The vLLM engine against a stand-in for the package: what is asked of it, and what is made of its answer."""

from __future__ import annotations

import dataclasses
import sys
import types

import pytest

from common.records import FinishReason
from data_gen.engines import Completion, make_engine
from tests.tokenizer_toys import character_tokenizer


@dataclasses.dataclass
class Output:
    token_ids: list[int]
    finish_reason: str


@dataclasses.dataclass
class Request:
    outputs: list[Output]


class StandIn:
    """Answers every request with its own number, a stop at path 0 and the length limit at the others."""

    def __init__(self, **settings):
        self.settings = settings
        self.calls = []
        self.rpc = []
        self.resets = 0
        self.reason = "length"

    def generate(self, prompts, parameters, use_tqdm):
        self.calls.append((prompts, parameters))
        return [
            Request([Output([i, j], "stop" if j == 0 else self.reason) for j in range(p.n)])
            for i, p in enumerate(parameters)
        ]

    def collective_rpc(self, method, kwargs):
        self.rpc.append((method, kwargs))

    def reset_prefix_cache(self):
        assert self.rpc  # after the new weights are in (L52)
        self.resets += 1


@pytest.fixture
def engine(monkeypatch):
    package = types.ModuleType("vllm")
    package.LLM = StandIn
    package.SamplingParams = lambda **settings: types.SimpleNamespace(**settings)
    monkeypatch.setitem(sys.modules, "vllm", package)
    return make_engine("vllm", "weights", character_tokenizer(), max_rows=64, dtype="float32")


def test_requests_and_results(engine):
    assert engine.llm.settings == {"model": "weights", "max_num_seqs": 64, "dtype": "float32"}
    sampled = engine.sample([[5], [6], [5]], n=2, temperature=0.7, max_new_tokens=9, seed=3, stop=["User:"])
    assert sampled[1] == [Completion((1, 0), FinishReason.STOP), Completion((1, 1), FinishReason.LENGTH)]
    prompts, parameters = engine.llm.calls[0]
    assert prompts == [{"prompt_token_ids": [5]}, {"prompt_token_ids": [6]}, {"prompt_token_ids": [5]}]
    first = parameters[0]
    assert (first.n, first.temperature, first.max_tokens, first.top_p, first.top_k) == (2, 0.7, 9, 1.0, -1)
    assert (first.stop, first.include_stop_str_in_output, first.stop_token_ids) == (["User:"], True, [1])
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


def test_new_weights_empty_the_prefix_cache(engine):
    engine.reload_weights("newer")
    assert engine.llm.rpc == [("reload_weights", {"weights_path": "newer"})]
    assert engine.llm.resets == 1
