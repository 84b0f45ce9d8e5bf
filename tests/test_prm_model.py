"""The PRM's network: the policy's backbone, a fresh seeded head, plain saving, freezing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from prm_support import tiny_policy, tiny_prm, toy_inputs
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

from common.errors import InputError
from prm.inputs import collate
from prm.model import (
    RIGHT,
    Calibration,
    build_prm,
    freeze,
    head_parameters,
    load_prm,
    merge_lora,
    save_prm,
    set_trainable,
    weights_hash,
    with_lora,
)
from prm.network import StepPRM
from prm.score import PRMScorer, score_logits, score_paths


@pytest.mark.parametrize("surprise", [True, False])
def test_backbone_is_the_policys_and_the_head_is_fresh(tmp_path: Path, surprise: bool) -> None:
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy(tmp_path))
    prm = build_prm(tmp_path, surprise=surprise)
    theirs, ours = policy.base_model.state_dict(), prm.base_model.state_dict()
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)
    names = {"score", "gate"} if surprise else {"score"}
    shapes = {f"{name}.weight": (1, 32) for name in names} | {f"{name}.bias": (1,) for name in names}
    assert {name: tuple(weight.shape) for name, weight in head_parameters(prm).items()} == shapes
    if surprise:
        assert torch.equal(prm.lm_head.weight, policy.get_output_embeddings().weight)


def test_plain_zero_head_starts_at_one_half(tmp_path: Path) -> None:
    prm = build_prm(tiny_policy(tmp_path), surprise=False)
    assert {score for path in score_paths(prm, toy_inputs(4)) for score in path} == {0.5}


def test_surprise_prm_starts_at_two_plus_the_log_likelihood_of_the_step(tmp_path: Path) -> None:
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy(tmp_path)).eval()
    inputs = toy_inputs(4)
    for one, logits in zip(inputs, score_logits(build_prm(tmp_path), inputs), strict=True):
        ids = torch.tensor([one.token_ids])
        with torch.no_grad():
            logprobs = policy(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        for start, end, logit in zip(one.step_starts, one.step_positions, logits, strict=True):
            assert logit == pytest.approx(2 + logprobs[start - 1 : end].sum().item(), abs=1e-3)


def test_head_is_seeded_whatever_the_global_state(tmp_path: Path) -> None:
    tiny_policy(tmp_path)
    torch.manual_seed(1)
    first = build_prm(tmp_path, head_std=0.1, seed=5)
    torch.manual_seed(2)
    assert weights_hash(first) == weights_hash(build_prm(tmp_path, head_std=0.1, seed=5))
    assert weights_hash(first) != weights_hash(build_prm(tmp_path, head_std=0.1, seed=6))


def test_plain_prm_loads_without_this_project(tmp_path: Path) -> None:
    prm = tiny_prm(tmp_path / "policy", surprise=False)
    save_prm(prm, tmp_path / "prm", Calibration(1.5, 0.3))
    plain = AutoModelForTokenClassification.from_pretrained(tmp_path / "prm").eval()
    assert plain.config.id2label == {0: RIGHT}
    batch = collate(toy_inputs(3), pad_id=0)
    with torch.no_grad():
        ours = prm.eval()(input_ids=batch.input_ids_BT, attention_mask=batch.attention_mask_BT).logits
        theirs = plain(input_ids=batch.input_ids_BT, attention_mask=batch.attention_mask_BT).logits
    torch.testing.assert_close(ours, theirs)


def test_surprise_prm_loads_through_the_same_class(tmp_path: Path) -> None:
    prm = tiny_prm(tmp_path / "policy")
    save_prm(prm, tmp_path / "prm", Calibration())
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "prm").eval()
    assert type(loaded) is StepPRM
    assert loaded.config.id2label == {0: RIGHT}
    assert score_paths(loaded, toy_inputs(5)) == score_paths(prm, toy_inputs(5))


def test_calibration_travels_with_the_weights(tmp_path: Path) -> None:
    prm = tiny_prm(tmp_path / "policy")
    save_prm(prm, tmp_path / "prm", Calibration(1.5, 0.3))
    loaded, calibration = load_prm(tmp_path / "prm")
    assert calibration == Calibration(1.5, 0.3)
    assert weights_hash(loaded) == weights_hash(prm)
    assert json.loads((tmp_path / "prm" / "prm.json").read_text())["weights_sha256"] == weights_hash(prm)
    assert not loaded.training
    assert not any(weight.requires_grad for weight in loaded.parameters())


@pytest.mark.parametrize(
    ("temperature", "threshold", "named"),
    [(0.0, 0.5, "temperature"), (float("nan"), 0.5, "temperature"), (1, 1.5, "threshold")],
)
def test_bad_calibration_is_refused(temperature: float, threshold: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Calibration(temperature, threshold)


def test_a_folder_without_calibration_is_no_prm(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no prm\.json"):
        load_prm(tiny_policy(tmp_path))


@pytest.mark.parametrize("names", [["wrong"], ["right", "wrong"], ["LABEL_0", "LABEL_1"]])
def test_L64_classes_are_told_by_name(tmp_path: Path, names: list[str]) -> None:
    config = AutoConfig.from_pretrained(tiny_policy(tmp_path))
    config.id2label = dict(enumerate(names))
    config.label2id = {name: k for k, name in enumerate(names)}
    with pytest.raises(InputError, match="labels are"):
        PRMScorer(AutoModelForTokenClassification.from_config(config))


def test_L64_a_model_that_always_says_right_scores_one(tmp_path: Path) -> None:
    prm = build_prm(tiny_policy(tmp_path), surprise=False)
    with torch.no_grad():
        head_parameters(prm)["score.bias"].fill_(30.0)
    assert all(score == pytest.approx(1.0) for path in score_paths(prm, toy_inputs(4)) for score in path)


def test_freezing_stops_gradients_and_the_hash_sees_any_change(tmp_path: Path) -> None:
    prm = tiny_prm(tmp_path)
    freeze(prm)
    before = weights_hash(prm)
    assert not any(weight.requires_grad for weight in prm.parameters())
    weight = prm.base_model.layers[0].mlp.up_proj.weight
    old = weight[0, 0].item()
    weight[0, 0] = old + 1e-6
    assert weights_hash(prm) != before
    weight[0, 0] = old
    assert weights_hash(prm) == before


def test_trainable_parts(tmp_path: Path) -> None:
    prm = tiny_prm(tmp_path)
    set_trainable(prm, "head")
    assert {name for name, weight in prm.named_parameters() if weight.requires_grad} == set(head_parameters(prm))
    set_trainable(prm, "all")
    fixed = {name for name, weight in prm.named_parameters() if not weight.requires_grad}
    assert fixed == {"lm_head.weight"}


@pytest.mark.parametrize("surprise", [True, False])
def test_lora_merges_back_into_a_plain_model(tmp_path: Path, surprise: bool) -> None:
    prm = tiny_prm(tmp_path, surprise=surprise)
    names = set(prm.state_dict())
    adapted = with_lora(prm, rank=2)
    trained = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    assert any("lora_" in name for name in trained)
    assert any("score" in name for name in trained)
    assert not any("lm_head" in name for name in trained)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.05)
    scores = score_paths(adapted, toy_inputs(3))
    merged = merge_lora(adapted)
    assert set(merged.state_dict()) == names
    for ours, theirs in zip(score_paths(merged, toy_inputs(3)), scores, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert merge_lora(merged) is merged
