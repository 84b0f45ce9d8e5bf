"""The table of metrics: its page is up to date, and what it names exists. The keys of runs: ``test_pipeline.py``."""

from __future__ import annotations

import json
import math
import re

import pytest
from fault_toys import put, run_with
from policy_toys import toy_model, toy_trainer
from test_critic import with_critic
from test_curriculum_run import trained as staged_run
from test_label_stage import PROBLEM, labelled
from test_policy_sampler import Beside
from test_policy_sampler import run as run_beside
from test_signals_trainer import signals_run

from common.config import Config, load_config
from common.quality_settings import QualityWeights
from common.runs import STAGE_FOLDERS, SUMS, Run
from data_gen.steps import path_from_text
from eval.doctor_rules import RULES as SYMPTOMS
from eval.metric_table import PAGE, find, flat_keys, main, page, sections
from policy.actions import RULES
from policy.options import PolicySettings
from policy.sft import sft_stage


def keys_of(run: Run) -> dict[str, set[str]]:
    """Every key that a finished round wrote, by place in the table."""
    found = {"ppo-log": {key for row in run.stage("ppo").metrics() for key in row}}
    for stage in ("sample", "label", "prm", "eval"):
        row = json.loads(run.stage(stage).file("metrics.json").read_text())
        row |= {"settings": dict.fromkeys(row["settings"], 1)} if stage == "eval" else {}
        found[stage] = set(flat_keys(row))
    done = {key for stage in STAGE_FOLDERS for key in flat_keys(run.stage(stage).summary)}
    found["done"] = {key for key in done - found["sample"] if not key.startswith(f"{SUMS}.")}
    return found


def keys_of_rarer_runs(folder, sampled) -> dict[str, set[str]]:
    """Keys that need another base, critic, signals, quality, stages, another sampler, a fault, completions, a start."""
    trainers = [
        toy_trainer(folder / "base", base_model=toy_model(7)),
        toy_trainer(folder / "critic", settings=with_critic()),
        toy_trainer(folder / "quality", settings=PolicySettings(quality=QualityWeights(completeness=0.2))),
    ]
    for trainer in trainers:
        trainer.train()
    trainers += [staged_run(folder / "stages"), run_beside(folder / "beside", Beside(), arguments={"max_steps": 4})]
    trainers += [signals_run(folder / "signals"), run_with(folder / "fault", put("advantages", math.nan))]
    rows = [row for trainer in trainers for row in trainer.state.log_history if "train_runtime" not in row]
    sources = ("data.label_sources=[frequency,monte_carlo]", "data.mc_completions=4")
    paths = [*sampled, path_from_text(PROBLEM, "3*4=12", 9)]  # without an answer, so without labels
    _, by_completions = labelled(folder / "labels", paths, PROBLEM, *sources)
    start = Run(folder / "sft")
    few = ("sft.source=solutions", "sft.problems=12", "sft.epochs=1", "sft.max_length=45", "data.validation=2")
    sft_stage(load_config(PAGE.parent.parent / "configs" / "micro.yaml", few), start)
    return {
        "ppo-log": {key for row in rows for key in row},
        "label": set(flat_keys(by_completions)),
        "done": {
            *(f"nonfinite.{kind}" for kind in trainers[-1].blackbox.counts),  # as policy.finish writes them
            *(key for key in flat_keys(start.stage("sft").summary) if not key.startswith(f"{SUMS}.")),
        },
    }


def unknown(written: dict[str, set[str]]) -> list[str]:
    """Keys that the table does not have."""
    return sorted(f"{place}: {key}" for place, keys in written.items() for key in keys if find(key, place) is None)


def unwritten(written: dict[str, set[str]]) -> list[str]:
    """Lines of the table that none of the keys belongs to."""
    used = {id(find(key, place)) for place, keys in written.items() for key in keys}
    every = [(one.place, metric) for one in sections(True) for group in one.groups for metric in group.metrics]
    return sorted(f"{place}: {metric.key}" for place, metric in every if id(metric) not in used)


def test_the_page_is_made_from_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m eval.metric_table"


def texts():
    return [
        cell
        for one in sections(True)
        for group in one.groups
        for metric in group.metrics
        for cell in (metric.formula, metric.healthy, metric.otherwise)
    ]


def test_rules_and_settings_that_the_table_names_exist():
    known = {rule.name for rule in (*SYMPTOMS, *RULES)}
    named = {name for cell in texts() for name in re.findall(r"`([a-z_]+)`", cell)} - {"quality", "no_correct_path"}
    assert len(named) > 20
    assert named <= known
    config = Config()
    settings = {
        name for cell in texts() for name in re.findall(r"\b(?:base|data|prm|ppo|eval|rounds)\.[a-z][a-z_0-9]+", cell)
    }
    assert len(settings) > 30
    for name in settings - {"eval.doctor"}:
        section, key = name.split(".")
        assert key in type(getattr(config, section)).model_fields or find(name) is not None, name
    assert not any("{" in cell for cell in texts())


def test_a_key_is_found_by_its_own_name_before_its_family():
    assert find("signals/total").key == "signals/total"
    assert find("signals/depth").key == "signals/<signal>"
    assert find("policy.by_topic.word.sampled.pass_at.8").key == "pass_at.<k>"
    assert find("kl/reference", "prm") is None
    assert find("kl/reference/x") is None
    assert find("left_out.longer than sft.max_length", "done").key == "left_out.<reason>"
    assert find("quality") is None


def test_keys_of_nested_rows():
    row = {"a": {"b": 1, "c": None, "d": {"value": None, "ci95": None}}, "e": [{"f": 1}, {"f": 2, "g": 0}], "h": []}
    assert sorted(set(flat_keys(row))) == ["a.b", "a.d", "e.f", "e.g"]


@pytest.mark.parametrize(("key", "code"), [("kl/reference", 0), ("kl/nonsense", 2)])
def test_command_explains_a_key(key, code, capsys):
    assert main([key]) == code
    said = capsys.readouterr()
    assert ("nats a token" in said.out) == (code == 0)
    assert ("no run writes this key" in said.err) == (code == 2)
