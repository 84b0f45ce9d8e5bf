"""``--show-prompt``, the families of models, and the configurations for real models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer_toys import byte_level_tokenizer, sentencepiece_tokenizer

from common.config import Config, load_config
from common.prompts import PromptTemplate
from common.records import FinishReason, Problem
from data_gen.__main__ import main
from data_gen.show_prompt import example_answer, rendered, token_roles
from data_gen.steps import build_path
from grading.extract import extract
from policy.arguments import trainer_arguments

PROJECT = Path(__file__).parent.parent
FAMILIES = sorted((PROJECT / "configs/families").glob("*.yaml"))
REAL = ("smollm2-135m", "qwen2.5-0.5b-gsm8k")
PROBLEM = Problem.create("What is 3 * 4 + 1?", "13", source="t", topic="t")


def test_every_token_of_an_answer_has_its_role():
    """One token a character: the spans can be read off the text."""
    tokenizer = byte_level_tokenizer(merges=[])
    text = "3*4=12\n12+1=13\nAnswer: 13"
    ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    path = build_path(PROBLEM, ids, FinishReason.STOP, tokenizer, seed=0, index=0)
    wanted = ["step 0"] * 5 + ["step 0, scored", "separator"] + ["step 1"] * 6 + ["step 1, scored"]
    wanted += ["answer"] * len("\nAnswer: 13") + ["end"]
    roles = token_roles(path, tokenizer)
    wanted[14] = roles[14]  # the line end before the answer parts or belongs to it: not this test's business
    assert roles[14] in ("separator", "answer")
    assert roles == wanted


@pytest.mark.parametrize("make", [byte_level_tokenizer, sentencepiece_tokenizer])
def test_the_example_shows_prompt_spans_and_verdict(make):
    tokenizer = make()
    base = Config().base
    shown = list(rendered(PROBLEM, "3 * 4 = 12\n12 + 1 = 13\nAnswer: 13", "by hand", base, tokenizer))
    lines = "\n".join(shown)
    assert "read: answer '13', gold '13': CORRECT; 2 steps" in lines
    assert "'12 + 1 = 13'" in lines
    count = len(PromptTemplate.from_config(base).ids(PROBLEM.text, tokenizer))
    assert f"prompt, {count} tokens:" in shown


def test_the_command_shows_the_default(capsys):
    assert main(["--show-prompt", "--config", str(PROJECT / "configs/tiny.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "reference solution of the generator" in shown
    assert ": CORRECT; " in shown
    assert "scored" in shown


def test_a_row_s_own_solution_is_shown(tmp_path):
    rows = [{"problem": f"{PROBLEM.text} ({k})", "answer": "13", "solution": "3*4=12\n12+1=13"} for k in range(2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = Config.model_validate({"data": {"source": str(tmp_path / "rows.jsonl")}})
    own = Problem.create(rows[1]["problem"], "13", source="t", topic="t")
    assert example_answer(own, config) == ("3*4=12\n12+1=13\nAnswer: 13", "field 'solution' of the row")
    text, origin = example_answer(PROBLEM, config)
    assert "stand-in" in origin
    assert extract(text).answer == "13"


# --- families and configurations


def test_there_are_families():
    assert {path.stem for path in FAMILIES} == {"smollm2", "qwen2.5", "llama3", "plain"}


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_a_family_s_answer_is_read_and_its_steps_are_cut(path):
    """Separator and answer format give back the steps and the answer they were made of."""
    config = load_config(path)
    base = config.base
    assert base.template == ("plain" if path.stem == "plain" else "chat")
    heads = ("## Step 1: multiply\n", "## Step 2: add\n") if path.stem == "llama3" else ("", "")
    steps = [f"{heads[0]}3 * 4 = 12", f"{heads[1]}12 + 1 = 13"]
    text = base.separator.join([*steps, base.answer_format.replace("{answer}", "13")])
    tokenizer = byte_level_tokenizer()
    path_ = build_path(PROBLEM, tokenizer(text)["input_ids"], FinishReason.STOP, tokenizer, seed=0, index=0)
    assert [step.text for step in path_.steps] == steps
    assert path_.answer == "13"
    assert not any(string in text for string in base.stop)


@pytest.mark.parametrize("name", REAL)
def test_configurations_of_real_models_fit_together(name, tmp_path):
    path = PROJECT / f"configs/{name}.yaml"
    config = load_config(path)
    arguments = trainer_arguments(config, tmp_path)
    assert arguments.per_device_train_batch_size == config.ppo.micro_batch
    assert config.base.dtype == "float32"  # AdamW on bfloat16 weights loses steps of 1e-6
    assert config.base.template == "chat"
    head = path.read_text()
    for word in ("memory", "time", "estimate", "launch", "make data prm ppo eval"):
        assert word in head
