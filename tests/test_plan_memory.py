"""Memory of a plan: numbers worked out by hand, published ones, and tensors counted in real models."""

import copy

import pytest
import torch
from live_bytes import LiveBytes
from peft import LoraConfig, get_peft_model
from plan_shapes import PUBLISHED, hand_shape, tiny_model, write_config
from trl.trainer.utils import add_fused_lm_head

from common.config import load_config
from common.models import tensor_bytes
from policy.plan_memory import (
    CPU_TILES,
    TILE,
    activations,
    backward_extra,
    kv_cache,
    layer_activations,
    prm_weights,
    sampling_logits,
    training_state,
    update_logits,
)
from policy.plan_phases import Layout, phases
from policy.plan_shape import read_shape
from prm.model import build_prm

GB = 1e9


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_published_number_of_weights(tmp_path, name):
    fields, weights = PUBLISHED[name]
    shape = read_shape(write_config(tmp_path / name, fields))
    assert shape.parameters == weights
    assert shape.is_tied == fields[-1]
    assert shape.multiplied == (weights if shape.is_tied else weights - fields[6] * fields[1])
    assert (shape.layers, shape.kv_width) == (fields[3], fields[5] * fields[1] // fields[4])


@pytest.mark.parametrize(("zero", "gigabytes"), [(1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_divides_what_figure_1_of_its_paper_says(zero, gigabytes):
    state = training_state(7_500_000_000, 0, 2, zero, 64)
    assert (state.weights + state.gradients + state.optimiser) / GB == pytest.approx(gigabytes, abs=0.05)


def test_training_state_by_hand():
    plain = training_state(10, 5, 4, 0, 1)
    assert (plain.weights, plain.gradients, plain.optimiser, plain.buffers) == (60, 40, 80, 0)
    adapters = training_state(10, 100, 2, 0, 1, trained_b=4)
    assert (adapters.weights, adapters.gradients, adapters.optimiser) == (240, 40, 80)
    sharded = training_state(12, 0, 2, 3, 2)
    assert (sharded.weights, sharded.gradients, sharded.optimiser, sharded.buffers) == (12, 12, 72, 48)
    with pytest.raises(ValueError, match="zero 4"):
        training_state(10, 0, 2, 4, 1)


def test_activations_and_cache_by_hand():
    shape = hand_shape()
    assert layer_activations(shape) == 6 * 4 + 2 * 4 + 2 * 4 + 4 * 8 + 1 + 2
    assert activations(shape, 10, 2) == 10 * 2 * (2 * 75 + 13)
    assert activations(shape, 10, 2, is_checkpointed=True) == 10 * 2 * (2 * 4 + 75 + 13)
    assert kv_cache(shape, 3, 7, 2) == 2 * 2 * 4 * 2 * 3 * 7
    assert sampling_logits(shape, 3, 2) == 3 * 10 * 18
    assert backward_extra(shape, 10, 2) == 10 * 2 * (3 * 8 + 2 * 4)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_a_real_model_keeps_the_activations_that_were_counted(tmp_path, kind, kv_heads):
    model, shape = tiny_model(tmp_path / "model", kind, kv_heads)
    add_fused_lm_head(model)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept = {}

    def keep(tensor):
        if tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.arange(40).view(2, 20)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _ = model(input_ids=ids, labels=ids, fused_lm_head=True).loss
    counted = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert counted == pytest.approx(activations(shape, 40, 4), rel=0.01)


@pytest.mark.parametrize(("kind", "is_checkpointed"), [("llama", False), ("qwen2", True)])
def test_state_and_peak_of_a_real_update(tmp_path, kind, is_checkpointed):
    model, shape = tiny_model(tmp_path / "model", kind, vocab=2000)
    add_fused_lm_head(model)
    if is_checkpointed:
        model.gradient_checkpointing_enable()
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.arange(96).view(4, 24)
    live = LiveBytes(*model.parameters())
    with live:
        for _ in range(2):  # the second time Adam's states are there
            loss = model(input_ids=ids, labels=ids, fused_lm_head=True).loss
            loss.backward()
            optimiser.step()
    state = training_state(shape.parameters, 0, 4, 0, 1)
    assert tensor_bytes(list(model.parameters())) == state.weights
    assert tensor_bytes([weight.grad for weight in model.parameters()]) == state.gradients
    assert tensor_bytes(optimiser.state_dict()["state"]) == pytest.approx(state.optimiser, rel=1e-3)
    logits = update_logits(shape, ids.numel(), 4, copies=CPU_TILES)
    extra = max(logits, backward_extra(shape, ids.numel(), 4))
    planned = state.total + activations(shape, ids.numel(), 4, is_checkpointed) + extra
    assert live.peak == pytest.approx(planned, rel=0.1)


def test_the_logits_of_an_update_come_in_tiles():
    one_tile = update_logits(hand_shape(vocab=151_936), TILE[0], 2)
    assert update_logits(hand_shape(vocab=151_936), 10 * TILE[0], 2) - one_tile == 9 * TILE[0] * 4 * 4
    without_head = update_logits(hand_shape(vocab=151_936), TILE[0], 2, is_head_trained=False)
    assert one_tile - without_head == 151_936 * 4 * 4


def test_adapters_are_counted_as_peft_builds_them(tmp_path):
    model, shape = tiny_model(tmp_path / "model", "qwen2")
    for targets in ((), ("q_proj", "down_proj")):
        adapted = get_peft_model(
            copy.deepcopy(model),
            LoraConfig(r=4, target_modules=list(targets) or "all-linear", exclude_modules=["lm_head"]),
        )
        built = sum(weight.numel() for name, weight in adapted.named_parameters() if "lora_" in name)
        assert shape.adapter(4, targets) == built


def test_a_prm_weighs_what_was_counted():
    prm, shape = build_prm("data_gen/base_model"), read_shape("data_gen/base_model")
    heads = 2 * (shape.hidden + 1)
    assert sum(weight.numel() for weight in prm.parameters()) * 4 == prm_weights(shape, 0) + 4 * heads
    assert prm_weights(shape, 500) == 2000
    plain = build_prm("data_gen/base_model", surprise=False)
    assert sum(weight.numel() for weight in plain.parameters()) * 4 == prm_weights(shape, 0, False) + 2 * heads


def phase(config, shape, layout, name):
    return next(one for one in phases(config, shape, layout) if (one.stage, one.name) == ("ppo", name))


def test_phases_of_the_seven_billion_model(tmp_path):
    shape = read_shape(write_config(tmp_path / "7b", PUBLISHED["qwen2.5-7b"][0]))
    config = load_config("configs/qwen2.5-math-7b-math.yaml")
    one, eight = Layout(1, 80 * 2**30), Layout(8, 80 * 2**30, zero=3)
    alone, sharded = (phase(config, shape, layout, "update") for layout in (one, eight))
    assert alone.parts["weights"] == 2 * shape.parameters
    assert sharded.parts["weights"] == alone.parts["weights"] / 8
    assert sharded.parts["optimiser"] == 12 * shape.parameters / 8
    assert sharded.parts["reference"] == alone.parts["reference"] / 8
    assert sharded.parts["PRM"] == alone.parts["PRM"]  # whole on every device
    assert phase(config, shape, eight, "sampling").parts["gathered weights"] == 2 * shape.parameters
    offloaded = phase(config, shape, Layout(8, 80 * 2**30, zero=3, offload="all"), "update")
    assert (offloaded.parts["optimiser"], offloaded.parts["weights"]) == (0, 0)
    assert offloaded.host == 14 * shape.parameters
    shared = phase(config, shape, Layout(8, 80 * 2**30, zero=3, vllm_share=0.25), "sampling")
    assert shared.parts["vLLM"] == 20 * 2**30
    assert "KV cache" not in shared.parts


def test_adapters_share_the_base_and_frozen_layers_the_reference(tmp_path):
    shape = read_shape(write_config(tmp_path / "1.5b", PUBLISHED["qwen2.5-1.5b"][0]))
    config = load_config("configs/qwen2.5-1.5b-gsm8k.yaml")
    update = phase(config, shape, Layout(1, 24 * 2**30), "update")
    adapter = shape.adapter(16)
    assert update.parts["weights"] == 2 * shape.parameters + 4 * adapter
    assert (update.parts["reference"], update.parts["PRM"]) == (0, 4 * adapter)
    frozen = load_config("configs/qwen2.5-0.5b-gsm8k.yaml", ["ppo.frozen_layers=28"])
    parts = phase(frozen, shape, Layout(1, 24 * 2**30), "update").parts
    assert parts["reference"] == parts["gradients"] < 0.01 * parts["weights"]
