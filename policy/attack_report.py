"""The report of an attack measurement: wins by family and rule, its table, its file, and what ppo makes of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common.config import Config
from common.errors import InputError
from common.runs import Run, write_atomic
from policy.arguments import policy_settings
from policy.attack_cases import Case, attack_rollouts, build_attacked
from policy.attack_rewards import VIEWS, Wins, count_wins, path_values, probability_inputs
from policy.options import PolicySettings
from policy.rollouts import Score
from prm.attacks import FAMILIES, HARDENING
from prm.credit import RULES, default_flow
from prm.score import PRMScorer

REPORT = "attacks.json"
CONFIGURED = "configured"
_Table = dict[str, dict[str, dict[str, Wins]]]


@dataclasses.dataclass(frozen=True)
class AttackReport:
    """What a measurement found.

    Attributes:
        prm_hash: hash of the weights of the PRM that was attacked.
        cases: honest paths that were attacked.
        nothing: for each family, honest paths that left it nothing to attack.
        credit, flow: the configured rule.
        wins: view -> rule (or ``configured``) -> family (or ``all``) -> wins.
    """

    prm_hash: str
    cases: int
    nothing: dict[str, int]
    credit: str
    flow: str
    wins: _Table

    @property
    def win_share(self) -> float:
        """Share of all attacks that the update would pay more than the honest path under the configured rule."""
        return self.wins["trained"][CONFIGURED]["all"].share or 0.0

    def to_row(self) -> dict[str, Any]:
        return {"win_share": self.win_share, **dataclasses.asdict(self)}


def measure_attacks(
    cases: Sequence[Case],
    families: Sequence[str],
    score: Score,
    settings: PolicySettings,
    tokenizer: Any,
    config: Config,
    prm_hash: str,
) -> AttackReport:
    """Attack the cases and compare what honest and attacked paths earn, under the configured and every other rule."""
    found, nothing = build_attacked(cases, families, tokenizer, config)
    rollouts = attack_rollouts(cases, found, settings, score)
    paths, sampled = (probability_inputs(one, settings, tokenizer) for one in rollouts)
    honest_of = {len(cases) + row: one.case for row, one in enumerate(found)}
    family_of = {len(cases) + row: one.family for row, one in enumerate(found)}
    flow = settings.flow or default_flow(settings.credit)
    wins: _Table = {view: {} for view in VIEWS}
    for rule in (CONFIGURED, *RULES):
        chosen = settings if rule == CONFIGURED else dataclasses.replace(settings, credit=rule, flow=None)
        for view, values in path_values(paths, sampled, chosen).items():
            wins[view][rule] = count_wins(values, honest_of, family_of)
    return AttackReport(prm_hash, len(cases), nothing, settings.credit, flow, wins)


def attack_prm(cases: Sequence[Case], scorer: PRMScorer, tokenizer: Any, config: Config) -> AttackReport:
    """Attack a PRM with every family under the configured settings."""
    settings = policy_settings(config)
    return measure_attacks(
        cases, tuple(FAMILIES), scorer.score, settings, tokenizer, config, prm_hash=scorer.weights_hash()
    )


def write_attacks(report: AttackReport, path: Path) -> None:
    """Write the report by rename."""
    write_atomic(path, json.dumps(report.to_row(), indent=1, allow_nan=False))


def check_attacks(config: Config, run: Run, prm_hash: str) -> None:
    """Let ppo start only when the attacks that were measured on its PRM won seldom; print what is not known.

    Raises:
        InputError: they won more than ``ppo.max_attack_wins`` of the time under the credit rule of ``config``, or
            ``attacks.json`` is not readable.
    """
    limit, path = config.ppo.max_attack_wins, run.stage("prm").file(REPORT)
    if limit is None:
        return
    if not path.is_file():
        print("ppo: the PRM was not attacked (make attack)")
        return
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        flow = config.ppo.flow or default_flow(config.ppo.credit)
        is_this = row["prm_hash"] == prm_hash and (row["credit"], row["flow"]) == (config.ppo.credit, flow)
        share = float(row["win_share"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: no attack report ({type(error).__name__}: {error}); run make attack again"
        ) from error
    if not is_this:
        print(f"ppo: {path} is of another PRM or credit rule; run make attack again")
    elif share > limit:
        raise InputError(
            f"attacks win {share:.3f} of the time against this PRM under {row['credit']}/{row['flow']} ({path}),"
            f" more than ppo.max_attack_wins = {limit}: harden it (make attack ARGS=--harden), change ppo.credit or set"
            " ppo.max_attack_wins=null"
        )


def print_report(report: AttackReport, console: Console | None = None) -> None:
    """Print one table a view: share of attacks that win, by family (rows) and credit rule (columns)."""
    console = console or Console(width=120)
    titles = {"trained": "the update pays the attack more", "reward": "the attack's own total reward is higher"}
    for view, rules in report.wins.items():
        table = Table(title=f"{titles[view]}: % of {report.cases} honest paths")
        table.add_column("family (*: may be taught)")
        table.add_column(f"{report.credit}/{report.flow}, 95 % interval", justify="right")
        for rule in RULES:
            table.add_column(f"{rule}", justify="right")
        for family in rules[CONFIGURED]:
            wins = rules[CONFIGURED][family]
            interval = "" if wins.low is None or wins.high is None else f" [{wins.low:.1%}, {wins.high:.1%}]"
            name = f"{family} *" if family in HARDENING else family
            table.add_row(name, _percent(wins) + interval, *(_percent(rules[rule][family]) for rule in RULES))
        console.print(table)


def _percent(wins: Wins) -> str:
    return "–" if wins.share is None else f"{wins.share:.1%}"
