"""The learned attack of a round: train, mine, cluster, print, keep (``python -m policy.attack --learn``).

``policy.attack_learn`` trains on the process reward alone -> ``policy.attack_mined`` keeps and clusters
  -> 3_prm/learned/mined.jsonl, 3_prm/learned_attacks.json (written last: the mark that it is finished)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from common.config import Config
from common.models import load_tokenizer, locate
from common.records import Problem, content_id
from common.runs import UNCHECKED, Run, read_records, stage_config, write_atomic, write_rows
from policy.arguments import policy_settings
from policy.attack_cases import load_cases
from policy.attack_learn import FOLDER, learn, learning_config
from policy.attack_mined import Mined, mine, report_row
from policy.attack_teach import best_right_rewards
from policy.rollouts import Score

REPORT = "learned_attacks.json"
MINED = f"{FOLDER}/mined.jsonl"
SHOWN_CLUSTERS = 12


def learned_attack(
    config: Config, run: Run, score: Score, threshold: float, prm_hash: str, batches: int
) -> dict[str, Any]:
    """Return the report of a learned attack on a judge of steps: the finished one of the same settings, or a new one.

    Args:
        score: the frozen judge. threshold: probability below which it calls a step wrong.
        prm_hash: names the judge. batches: generation batches of the run.

    Raises:
        InputError: stages ``sample`` or ``prm`` are not finished, or there are too few problems for a batch.
        RunError: updates came out non-finite.
    """
    stage = run.require("prm")
    training = learning_config(config, batches)
    asked = {name: value for name, value in stage_config(training, "ppo").items() if name not in UNCHECKED}
    key = content_id(prm_hash, threshold, json.dumps(asked, sort_keys=True))
    if (old := read_report(run)) and old["key"] == key:
        print(f"policy.attack: {stage.file(REPORT)} is finished")
        return old
    stage.file(REPORT).unlink(missing_ok=True)
    found = learn(training, run, score)
    seen = {one.path.problem_id for one in found.scored}
    cases = load_cases(config, run, load_tokenizer(locate(run.start_model(config))))
    cases = [case for case in cases if case.problem.id in seen]
    settings = policy_settings(training)
    mined = mine(found.scored, threshold, best_right_rewards(cases, score, settings), settings)
    problems = {
        one.id: one for one in read_records(run.require("sample").file("problems_train.jsonl"), Problem.from_row)
    }
    row = {"key": key, "prm_hash": prm_hash, "threshold": threshold, **report_row(found, mined, problems)}
    write_rows(stage.file(MINED), (one.to_row() for one in mined))
    write_atomic(stage.file(REPORT), json.dumps(row, indent=1, ensure_ascii=False, allow_nan=False))
    return row


def read_report(run: Run) -> dict[str, Any] | None:
    """Return what a finished learned attack wrote, None without one."""
    path = run.stage("prm").file(REPORT)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def mined_paths(run: Run, prm_hash: str) -> list[Mined]:
    """Return the mined paths of a finished learned attack on this very PRM; none of another's, none without one."""
    row = read_report(run)
    if row is None or row["prm_hash"] != prm_hash:
        return []
    return read_records(run.stage("prm").file(MINED), Mined.from_row)


def summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the few figures of a report that the command's last line has."""
    return {
        "learned_sampled": row["sampled"],
        "learned_high_wrong": row["high_wrong"],
        "learned_share": row["share"],
        "learned_clusters": len(row["clusters"]),
    }


def print_learned(row: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what a learned attack did to the policy, and its largest clusters."""
    console = console or Console(width=120)
    batches = row["batches"]
    kl = f"; KL to the start {row['kl'][-1]:.3f} nats a token" if row["kl"] else ""
    console.print(
        f"learned attack, {len(batches)} batches on the PRM alone: its mean score {_change(row['mean_score'])},"
        f" validation accuracy {_change(row['accuracy'])}{kl}"
    )
    if not row["high_wrong"]:
        console.print(f"no high-score wrong path in {row['sampled']} (95 %: at most {row['high']:.2%})")
        return
    console.print(
        f"{row['high_wrong']} of {row['sampled']} paths are wrong with a high score: {row['share']:.1%}"
        f" [{row['low']:.1%}, {row['high']:.1%}]; {batches[0]['high_wrong']} in the first batch,"
        f" {batches[-1]['high_wrong']} in the last, of {batches[0]['scored']} and {batches[-1]['scored']} scored"
    )
    table = Table(title=f"clusters by pattern, {min(SHOWN_CLUSTERS, len(row['clusters']))} of {len(row['clusters'])}")
    for name in ("paths", "share", "first/last batch", "mean score", "believed", "paid"):
        table.add_column(name, justify="right")
    table.add_column("example")
    for one in row["clusters"][:SHOWN_CLUSTERS]:
        figures = [f"{one['size']}", f"{one['share']:.1%}", f"{one['batches'][0]}/{one['batches'][-1]}"]
        figures += [f"{one['mean_score']:.3f}", f"{one['believed']}", f"{one['paid']}"]
        table.add_row(*figures, f"{one['example']['problem']}\n{one['example']['path']}")
    console.print(table)


def _change(values: Sequence[float]) -> str:
    return f"{values[0]:.3f} -> {values[-1]:.3f}" if values else "not measured"
