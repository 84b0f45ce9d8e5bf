"""Adapters over one copy of the base: policy, reference and PRM share its tensors and do not disturb each other."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from policy_toys import RecordedSampler, toy_model, toy_score, toy_tokenizer, toy_trainer
from prm_support import toy_inputs
from safetensors import safe_open
from test_policy_trainer import assert_same_weights, logged, resumed_run, weights
from trl.trainer.utils import add_fused_lm_head

from common.adapters import ADAPTER_OFF, FOLDER, distinct_bytes, save_adapter, shared_copy, with_adapter
from common.config import Config, LoraSection, load_config
from common.errors import InputError
from common.models import load_policy, weights_hash
from data_gen.engines import TransformersEngine
from policy.forward import token_logprobs
from policy.models import refuse_sharded, save_policy, start_models
from policy.trainer import ProcessPPOTrainer
from prm.adapted import adapted_prm, save_fitted, shared_scorer
from prm.model import Calibration, load_prm
from prm.score import score_paths

MICRO = Path(__file__).parent.parent / "configs" / "micro.yaml"
LORA = LoraSection(rank=2)


def base_folder(folder: Path) -> Path:
    """The toy base model and its tokenizer on disk."""
    if not (folder / "base").exists():
        toy_model().save_pretrained(folder / "base")
        toy_tokenizer().save_pretrained(folder / "base")
    return folder / "base"


def configured(folder: Path, *overrides: str) -> Config:
    return load_config(MICRO, [f"base.model={base_folder(folder)}", "lora.rank=2", *overrides])


def moved(model: Any, seed: int = 1, std: float = 0.1) -> Any:
    """The model with all its trainable weights drawn anew: as if its adapter had been trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                weight.normal_(std=std, generator=generator)
            if name.endswith("gate.modules_to_save.default.bias"):
                weight.fill_(-3.0)  # else every path of a random model has probability 0
    return model


def adapted_policy(folder: Path, is_moved: bool = False) -> Any:
    policy = with_adapter(load_policy(str(base_folder(folder))), LORA, "CAUSAL_LM", seed=3)
    return moved(policy, seed=2) if is_moved else policy


def saved_prm(folder: Path, surprise: bool = True) -> Path:
    """A PRM with a trained adapter, as the prm stage saves it."""
    config = configured(folder, f"prm.surprise={surprise}")
    prm = moved(adapted_prm(load_policy(config.base.model), LORA, surprise=surprise))
    save_fitted(prm, folder / "prm", Calibration(1.3, 0.4), config)
    return folder / "prm"


def logits(model: Any) -> torch.Tensor:
    ids = torch.tensor([one.token_ids[:6] for one in toy_inputs(4)])
    with torch.no_grad():
        return model(input_ids=ids).logits


@pytest.mark.parametrize("surprise", [True, False])
def test_policy_reference_and_prm_hold_one_copy_of_the_base(tmp_path: Path, surprise: bool) -> None:
    config = configured(tmp_path)
    base = load_policy(config.base.model)
    tensors = {weight.data_ptr() for weight in base.parameters()}
    alone = distinct_bytes(base)
    scorer = shared_scorer(saved_prm(tmp_path, surprise), base, LORA)
    models = start_models(config, config.base.model, True, base)
    assert models.reference == ADAPTER_OFF
    policy_own = {w.data_ptr(): w.nbytes for w in models.policy.parameters() if w.requires_grad}
    prm_own = {w.data_ptr(): w.nbytes for w in scorer.model.parameters() if w.data_ptr() not in tensors}
    assert not policy_own.keys() & prm_own.keys()
    assert distinct_bytes(models.policy, scorer.model) == alone + sum(policy_own.values()) + sum(prm_own.values())
    backbone = {w.data_ptr() for w in base.base_model.parameters() if not w.requires_grad}
    assert backbone <= {w.data_ptr() for w in scorer.model.parameters()}  # none of the PRM's backbone is its own
    assert set(policy_own.values()) == {2 * 32 * 4, 2 * 48 * 4}  # rank 2 on widths 32 and 48, float32
    assert distinct_bytes(load_policy(config.base.model), load_prm(tmp_path / "prm")[0]) > 1.9 * alone  # unshared


def test_shared_copy_is_of_other_modules_with_the_same_tensors() -> None:
    model = toy_model()
    copied = shared_copy(model)
    assert not {id(module) for module in model.modules()} & {id(module) for module in copied.modules()}
    for kind in ("named_parameters", "named_buffers"):
        ours, theirs = dict(getattr(model, kind)()), dict(getattr(copied, kind)())
        assert ours.keys() == theirs.keys()
        assert all(ours[name] is theirs[name] for name in ours)
    assert torch.equal(logits(model), logits(copied))


@pytest.mark.parametrize("surprise", [True, False])
def test_shared_prm_scores_as_the_unshared_one(tmp_path: Path, surprise: bool) -> None:
    folder = saved_prm(tmp_path, surprise)
    shared = shared_scorer(folder, load_policy(str(base_folder(tmp_path))), LORA)
    unshared, calibration = load_prm(folder)
    assert shared.calibration == calibration == Calibration(1.3, 0.4)
    inputs = toy_inputs(12)
    wanted = score_paths(unshared, inputs, temperature=1.3)
    for ours, theirs in zip(shared.score_inputs(inputs), wanted, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert 0.05 < sum(path[0] for path in wanted) / len(wanted) < 0.95
    with shared.model.disable_adapter():  # and the adapter is part of that score
        assert max(abs(a[0] - b[0]) for a, b in zip(shared.score_inputs(inputs), wanted, strict=True)) > 1e-3


def test_scoring_leaves_optimiser_and_sampler_as_they_are(tmp_path: Path) -> None:
    """Parameters that train, samples and log-probs before and after scoring, and without any PRM, are the same bits."""
    base = load_policy(str(base_folder(tmp_path)))
    scorer = shared_scorer(saved_prm(tmp_path), base, LORA)
    policy = moved(with_adapter(base, LORA, "CAUSAL_LM", seed=3), seed=2)
    prompts = [list(one.token_ids[:5]) for one in toy_inputs(3)]

    def seen(model: Any) -> tuple[Any, ...]:
        engine = TransformersEngine(model, toy_tokenizer())
        trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
        return trained, engine.sample(prompts, n=4, temperature=1.0, max_new_tokens=12, seed=5), logits(model)

    optimised = {id(weight) for weight in policy.parameters() if weight.requires_grad}
    before = seen(policy)
    hash_before = scorer.weights_hash()
    scorer.score_inputs(toy_inputs(12))
    after = seen(policy)
    alone = seen(adapted_policy(tmp_path, is_moved=True))
    assert optimised == {id(weight) for weight in policy.parameters() if weight.requires_grad}
    assert all("lora_" in name for name in before[0])
    for other in (after, alone):
        assert before[:2] == other[:2]
        assert torch.equal(before[2], other[2])
    assert scorer.weights_hash() == hash_before


def test_a_run_beside_the_shared_prm_is_one_beside_a_prm_of_its_own_bit_for_bit(tmp_path: Path) -> None:
    folder, runs = saved_prm(tmp_path), []
    for is_shared in (True, False):
        base = load_policy(str(base_folder(tmp_path)))
        scorer = shared_scorer(folder, base if is_shared else shared_copy_of_values(base), LORA)
        policy = with_adapter(base, LORA, "CAUSAL_LM", seed=3)
        trainer = toy_trainer(tmp_path, policy, reference=ADAPTER_OFF, score=scorer.score, arguments={"max_steps": 4})
        before = scorer.weights_hash()
        trainer.train()
        assert scorer.weights_hash() == before
        runs.append(trainer)
    assert_same_weights(*runs)
    assert logged(runs[0], "prm/mean_score") == logged(runs[1], "prm/mean_score")
    start = weights_hash(with_adapter(load_policy(str(base_folder(tmp_path))), LORA, "CAUSAL_LM", seed=3))
    assert weights_hash(runs[0].model) != start


def shared_copy_of_values(model: Any) -> Any:
    """Another model of equal weights."""
    twin = toy_model(9)
    twin.load_state_dict(model.state_dict())
    return twin.eval()


class SpyTrainer(ProcessPPOTrainer):
    """Keeps every generation batch."""

    batches: ClassVar[list[dict[str, Any]]] = []

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.batches.append(output)
        return output


@pytest.mark.parametrize("carried", [False, True])
def test_reference_is_the_base_or_the_adapter_a_round_starts_from(tmp_path: Path, carried: bool) -> None:
    """Also in the second batch, after the adapter has moved."""

    class Spy(SpyTrainer):
        batches: ClassVar[list[dict[str, Any]]] = []

    policy = adapted_policy(tmp_path, is_moved=carried)
    reference = None if carried else ADAPTER_OFF
    off = ADAPTER_OFF if carried else None
    trainer = toy_trainer(tmp_path, policy, reference=reference, base_model=off, trainer_class=Spy)
    trainer.train()
    # a model of its own that says the same: the plain base, or one with the adapter as it started
    twin = adapted_policy(tmp_path, is_moved=True) if carried else load_policy(str(base_folder(tmp_path)))
    add_fused_lm_head(twin.get_base_model() if carried else twin)
    assert len(Spy.batches) == 2
    for batch in Spy.batches:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        with torch.no_grad():
            wanted, _ = token_logprobs(twin, ids, mask, batch["completion_ids"].size(1), 4)
        assert torch.equal(batch["ref_per_token_logps"], wanted)
    assert logged(trainer, "kl/reference")[0] == 0
    assert logged(trainer, "kl/reference")[-1] > 0
    assert len(logged(trainer, "kl/base")) == (2 if carried else 0)
    assert all(abs(kl) > 1e-3 for kl in logged(trainer, "kl/base"))  # a moved adapter is far from the base at once
    trained = {name for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    assert trained == {name for name in weights(trainer) if ".default." in name}


@pytest.mark.parametrize("carried", [False, True])
def test_two_plus_two_is_four_bit_for_bit(tmp_path: Path, carried: bool) -> None:
    def changes() -> dict[str, Any]:
        return {
            "model": adapted_policy(tmp_path, is_moved=carried),
            "reference": None if carried else ADAPTER_OFF,
            "base_model": ADAPTER_OFF if carried else None,
        }

    straight = toy_trainer(tmp_path / "straight", **changes())
    straight.train()
    first = changes()
    resumed = resumed_run(tmp_path / "resumed", fresh_model=lambda: changes()["model"], **first)
    assert_same_weights(straight, resumed)
    for name in ("loss", "kl/reference", "kl/base"):
        assert logged(resumed, name) == logged(straight, name), name
    checkpoint = tmp_path / "resumed" / "checkpoint-4"
    assert "model.safetensors" not in {path.name for path in checkpoint.iterdir()}  # adapters only
    if carried:
        return
    other = load_policy(str(base_folder(tmp_path)))
    with torch.no_grad():
        other.lm_head.weight.add_(1.0)
    another = toy_trainer(
        tmp_path / "resumed", **(changes() | {"model": with_adapter(other, LORA, "CAUSAL_LM", seed=3)})
    )
    with pytest.raises(ValueError, match="the reference model is not the one this run started with"):
        another.train(resume_from_checkpoint=str(checkpoint))


def test_saved_policy_is_plain_merged_and_free_of_the_prm(tmp_path: Path) -> None:
    config = configured(tmp_path)
    base = load_policy(config.base.model)
    scorer = shared_scorer(saved_prm(tmp_path), base, LORA)
    policy = moved(with_adapter(base, LORA, "CAUSAL_LM", seed=3), seed=2)
    sampler = SyncedSampler()
    trainer = toy_trainer(
        tmp_path, policy, reference=None, score=scorer.score, sampler=sampler, arguments={"max_steps": 4}
    )
    trainer.train()
    save_policy(trainer, tmp_path / "policy", config)
    plain = load_policy(str(tmp_path / "policy"))
    assert set(plain.state_dict()) == set(toy_model().state_dict())
    with safe_open(tmp_path / "policy" / "model.safetensors", "pt") as saved:
        assert set(saved.keys()) == set(toy_model().state_dict())
    torch.testing.assert_close(logits(plain), logits(policy), rtol=0, atol=1e-5)
    assert not torch.allclose(logits(plain), logits(toy_model()), atol=1e-2)
    with safe_open(tmp_path / "policy" / FOLDER / "adapter_model.safetensors", "pt") as saved:
        assert all(".lora_" in name for name in saved.keys())  # noqa: SIM118  # safe_open is no mapping
    assert not (tmp_path / "policy" / FOLDER / "ref").exists()
    assert sampler.names == [set(policy.state_dict())]
    assert not any("score" in name or "modules_to_save" in name for name in sampler.names[0])
    with safe_open(tmp_path / "prm" / FOLDER / "adapter_model.safetensors", "pt") as saved:
        assert any("score" in name for name in saved.keys())  # noqa: SIM118
    carried = start_models(config, str(tmp_path / "policy"), False)
    torch.testing.assert_close(logits(carried.policy), logits(policy), rtol=0, atol=0)
    assert (carried.reference, carried.base) == (None, ADAPTER_OFF)
    to_base = start_models(configured(tmp_path, "ppo.reference=base"), str(tmp_path / "policy"), False)
    assert (to_base.reference, to_base.base) == (ADAPTER_OFF, None)


class SyncedSampler(RecordedSampler):
    """An engine that is given the policy before each batch; keeps the names of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[set[str]] = []

    def update_weights(self, model: Any) -> None:
        self.names.append(set(model.state_dict()))


def test_bfloat16_base_is_shared_and_heads_stay_float32(tmp_path: Path) -> None:
    base = load_policy(str(base_folder(tmp_path)), "bfloat16")
    prm = adapted_prm(base, LORA, surprise=True)
    assert {w.dtype for w in prm.parameters() if w.requires_grad} == {torch.float32}
    assert base.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
    wanted = score_paths(adapted_prm(load_policy(str(base_folder(tmp_path))), LORA, surprise=True), toy_inputs(6))
    for ours, theirs in zip(score_paths(prm, toy_inputs(6)), wanted, strict=True):
        assert ours == pytest.approx(theirs, abs=0.05)


def test_what_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    base = str(base_folder(tmp_path))
    save_adapter(adapted_policy(tmp_path), tmp_path / "saved")
    with pytest.raises(InputError, match=r"made with lora\.rank 2 and lora\.alpha 4, now they are 4 and 8"):
        with_adapter(load_policy(base), LoraSection(rank=4), "CAUSAL_LM", seed=0, folder=tmp_path / "saved")
    with pytest.raises(InputError, match=r"no adapter; it was trained in full"):
        with_adapter(load_policy(base), LORA, "CAUSAL_LM", seed=0, folder=base)
    with pytest.raises(InputError, match=r"lora\.targets = \('nowhere',\)"):
        with_adapter(load_policy(base), LoraSection(rank=2, targets=("nowhere",)), "CAUSAL_LM", seed=0)
    with pytest.raises(InputError, match="embeddings are shared"):
        load_config(MICRO, ["lora.rank=2", "lora.targets=[q_proj,lm_head]"])
    quantised = load_policy(base)
    quantised.config.quantization_config = {"load_in_4bit": True}
    with pytest.raises(InputError, match=r"QLoRA.*base\.dtype=bfloat16"):
        with_adapter(quantised, LORA, "CAUSAL_LM", seed=0)
    zero = SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=SimpleNamespace(zero_stage=3)))
    with pytest.raises(InputError, match=r"not supported under FSDP or ZeRO-3"):
        refuse_sharded(SimpleNamespace(accelerator=zero, is_fsdp_enabled=False))
    zero.state.deepspeed_plugin.zero_stage = 2
    refuse_sharded(SimpleNamespace(accelerator=zero, is_fsdp_enabled=False))
    with pytest.raises(ValueError, match="'adapter off' needs a model with an adapter"):
        toy_trainer(tmp_path, reference=ADAPTER_OFF)


def test_targets_scale_and_seed_are_as_asked(tmp_path: Path) -> None:
    settings = LoraSection(rank=2, alpha=6.0, targets=("q_proj", "v_proj"))
    hashes = []
    for seed in (1, 1, 2):
        torch.manual_seed(7 + len(hashes))  # the global state plays no part
        policy = with_adapter(load_policy(str(base_folder(tmp_path))), settings, "CAUSAL_LM", seed=seed)
        hashes.append(weights_hash(policy))
    assert hashes[0] == hashes[1] != hashes[2]
    adapted = {name.split(".lora_")[0].split(".")[-1] for name, _ in policy.named_parameters() if ".lora_" in name}
    assert adapted == {"q_proj", "v_proj"}
    assert torch.equal(logits(policy), logits(toy_model().eval()))  # a fresh adapter changes nothing
    save_adapter(policy, tmp_path / "saved")
    facts = json.loads((tmp_path / "saved" / "adapter_config.json").read_text())
    assert (facts["r"], facts["lora_alpha"], facts["lora_dropout"]) == (2, 6.0, 0.0)
    toy_trainer(tmp_path, policy, reference=ADAPTER_OFF, score=toy_score)


def test_reference_shares_the_frozen_lower_layers(tmp_path: Path) -> None:
    """Full fine-tuning with the lower of 2 layers frozen: it stays, the reference holds it, the reference stays."""
    config = configured(tmp_path, "lora.rank=0", "ppo.frozen_layers=1")
    models = start_models(config, config.base.model, True)
    start = toy_model().state_dict()
    trainer = toy_trainer(tmp_path, models.policy, arguments={"max_steps": 4})
    frozen = [*models.policy.model.layers[0].parameters(), models.policy.model.embed_tokens.weight]
    saved = sum(weight.nbytes for weight in frozen)
    assert distinct_bytes(trainer.model, trainer.ref_model) == 2 * distinct_bytes(toy_model()) - saved
    trainer.train()
    now, reference = trainer.model.state_dict(), trainer.ref_model.state_dict()
    assert all(torch.equal(reference[name], start[name]) for name in start)
    moved_names = {name for name in start if not torch.equal(now[name], start[name])}
    still = {name for name in start if name.startswith(("model.layers.0.", "model.embed_tokens."))}
    assert moved_names == set(start) - still
    with pytest.raises(InputError, match=r"ppo\.frozen_layers = 3: the model has 2 layers"):
        start_models(configured(tmp_path, "lora.rank=0", "ppo.frozen_layers=3"), config.base.model, True)
    with pytest.raises(InputError, match=r"frozen_layers is for full fine-tuning"):
        start_models(configured(tmp_path, "ppo.frozen_layers=1"), config.base.model, True)
