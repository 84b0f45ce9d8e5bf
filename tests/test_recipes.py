"""Recipes of the field: every configuration loads and asks for nothing the trainer refuses; one runs end to end."""

import json
from pathlib import Path

import pytest

from common.cli import stage_main
from common.config import load_config
from common.models import load_policy, weights_hash
from common.runs import Run
from data_gen.__main__ import data_stage
from data_gen.formats import convert_rows
from data_gen.synthetic import generate
from policy.arguments import monitor_limits, policy_settings, trainer_arguments
from policy.options import check_arguments
from policy.plan_work import uses_prm
from policy.train import train_stage

CONFIGS = Path(__file__).parent.parent / "configs"
RECIPES = sorted((CONFIGS / "recipes").glob("*.yaml"))
ALL = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name not in ("accelerate", "deepspeed"))
MICRO = [
    "base.model=data_gen/base_model",
    "base.dtype=float32",
    "base.template=plain",
    "base.instruction=''",
    "data.pool=24",
    "data.validation=3",
    "data.test=3",
    "data.max_new_tokens=120",
    "ppo.problems=4",
    "ppo.paths=4",
    "ppo.minibatches=2",
    "ppo.micro_batch=8",
    "ppo.batches=1",
    "ppo.eval_every=1",
    "ppo.learning_rate=1e-4",
]


def test_there_are_recipes():
    names = {path.stem for path in RECIPES}
    assert names >= {"simplerl-ppo", "simplerl-grpo", "outcome-grpo", "pure", "math-shepherd"}


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_configuration_makes_the_trainer_s_arguments(path, tmp_path):
    config = load_config(path)
    settings = policy_settings(config)
    check_arguments(trainer_arguments(config, tmp_path), settings)
    assert monitor_limits(config).kl_cap > 0


def test_sympy_rlvr_holds_the_published_values():
    """8 paths a problem, rate 1e-5, three stages, eight signals, one problem an update, a fine-tune as reference."""
    for size in ("0.5b", "1.5b"):
        config = load_config(CONFIGS / f"sympy-rlvr-{size}.yaml")
        ppo = config.ppo
        assert (ppo.paths, ppo.learning_rate, ppo.kl_coef, ppo.reward) == (8, 1e-5, 0.01, "signals")
        assert ppo.problems * ppo.paths // ppo.minibatches == 8
        assert ppo.batches == 3 * (config.curriculum.max_batches or 0) == 270
        assert ppo.batches % ppo.eval_every == (config.curriculum.max_batches or 0) % ppo.eval_every == 0
        assert (len(config.curriculum.stages), config.curriculum.by) == (3, "level")
        assert (config.lora.rank, config.lora.scale, config.sft.source, ppo.reference) == (16, 32, "solutions", "round")
        assert not uses_prm(config)


def test_recipes_hold_the_published_values():
    simplerl = load_config(CONFIGS / "recipes/simplerl-ppo.yaml")
    ppo = simplerl.ppo
    assert (ppo.baseline, ppo.learning_rate, ppo.temperature, ppo.kl_coef) == ("gae", 5e-7, 0.6, 0.01)
    assert ppo.problems * ppo.paths / ppo.minibatches == 128
    assert not uses_prm(simplerl)
    assert load_config(CONFIGS / "recipes/simplerl-grpo.yaml").ppo.baseline == "grpo"
    grpo = load_config(CONFIGS / "recipes/outcome-grpo.yaml")
    assert (grpo.ppo.learning_rate, grpo.ppo.kl_coef, grpo.ppo.paths, grpo.data.max_new_tokens) == (
        1e-6,
        0.04,
        64,
        1024,
    )
    assert grpo.ppo.problems * grpo.ppo.paths == 1024
    pure = load_config(CONFIGS / "recipes/pure.yaml")
    assert (pure.ppo.credit, pure.ppo.baseline, pure.ppo.paths, pure.ppo.kl_coef) == ("softmin", "rloo", 4, 0.001)
    assert 0.1 <= pure.ppo.anchor_fraction <= 0.2
    shepherd = load_config(CONFIGS / "recipes/math-shepherd.yaml")
    assert (shepherd.data.label_sources, shepherd.data.mc_completions) == (("monte_carlo",), 8)
    assert (shepherd.data.mc_form, shepherd.eval.aggregate, shepherd.ppo.outcome_weight) == ("hard", "min", 0)


@pytest.mark.parametrize("devices", [6, 8, 32])
def test_layouts_of_simplerl_divide(devices, tmp_path):
    six = ["ppo.problems=1020", "ppo.minibatches=68"] if devices == 6 else []
    config = load_config(CONFIGS / "recipes/simplerl-ppo.yaml", six)
    args = trainer_arguments(config, tmp_path, devices)
    assert args.per_device_train_batch_size * args.steps_per_generation % config.ppo.paths == 0


def test_simplerl_runs_from_its_own_json_to_a_policy(tmp_path):
    problems = generate("train", 0, 40, levels=range(5, 8))
    rows = [
        {"input": f"<|im_start|>user\n{p.text}<|im_end|>", "question": p.text, "gt_answer": p.answer, "level": 3}
        for p in problems
    ]
    published, own = tmp_path / "simplerl.json", tmp_path / "problems.jsonl"
    published.write_text(json.dumps(rows))
    asked = ["--from", "simplerl", "--to", "problems", "--input", str(published), "--output", str(own)]
    assert convert_rows(asked) == 0
    recipe = ["--config", str(CONFIGS / "recipes/simplerl-grpo.yaml"), "--run", str(tmp_path / "run")]
    for stage, work in (("data", data_stage), ("ppo", train_stage)):
        assert stage_main(stage, "", ("base",), work, [*recipe, f"data.source={own}", *MICRO]) == 0
    ppo = Run(tmp_path / "run").require("ppo")
    assert (ppo.summary["steps"], ppo.summary["process_weight"], ppo.summary["prm_hash"]) == (2, 0.0, None)
    assert weights_hash(load_policy(str(ppo.file("policy")))) != weights_hash(load_policy("data_gen/base_model"))
