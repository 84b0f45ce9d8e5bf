"""Teach a PRM the attacks of half of the families, and measure what that is worth on the other half.

labelled paths of the round + attacked paths of problems that are neither held out nor measured (+ mined paths)
  -> the fit of stage ``prm`` again -> 3_prm/hardened, 3_prm/harden.json -> taken only when asked
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import torch

from common.config import Config
from common.errors import InputError
from common.files import payload_sums
from common.models import load_tokenizer, locate
from common.runs import SUMS, Run, StageFolder, write_atomic
from policy.attack_cases import Case, build_attacked, labelled_attacks, load_cases
from policy.attack_lesson import lesson_row, load_lesson
from policy.attack_report import REPORT, AttackReport, attack_prm, print_report
from policy.attack_rewards import VIEWS, Wins
from prm.__main__ import fit_settings, quality_of, training_inputs, write_report
from prm.adapted import save_fitted, start_prm
from prm.attacks import HARDENING, UNTAUGHT
from prm.inputs import PRMInput, labelled_inputs
from prm.model import policy_lm_head
from prm.score import PRMScorer
from prm.train import fit_prm, split_by_problem

HARDENED, PLAIN, RECORD = "hardened", "unhardened", "harden.json"


def untaught_share(report: AttackReport, view: str) -> float:
    """Return the share of attacks of the families that are never taught that win under the configured rule."""
    wins = [report.wins[view]["configured"].get(family, Wins.count([])) for family in UNTAUGHT]
    total = sum(one.of for one in wins)
    return sum(one.wins for one in wins) / total if total else 0.0


def attack_inputs(config: Config, cases: list[Case], tokenizer: Any) -> list[PRMInput]:
    """Return the training inputs of the cases' attacks of the families in ``HARDENING``.

    Raises:
        InputError: no case is left to attack.
    """
    if not cases:
        raise InputError("no problem is left to teach attacks on: lower --problems or raise data.pool")
    found, _ = build_attacked(cases, HARDENING, tokenizer, config)
    prompts = {case.problem.id: list(case.prompt_ids) for case in cases}
    return labelled_inputs(labelled_attacks(found), prompts, max_length=config.prm.max_length)[0]


def harden(config: Config, run: Run, before: AttackReport, problems: int, is_learned: bool = False) -> dict[str, Any]:
    """Refit the round's PRM with attacks as negatives; write it beside the round's own and return what changed.

    Args:
        before: attacks on the round's own PRM. problems: how many problems were, and will be, measured; attacks are
            taught on other ones.
        is_learned: True = paths mined by a learned attack on this PRM are taught too. Where there are such paths, what
            the refit makes of the held-out ones is measured either way.
    """
    stage = run.require("prm")
    start = locate(run.start_model(config))
    tokenizer = load_tokenizer(start)
    inputs, counts = training_inputs(config, run, tokenizer)
    train, held_out = split_by_problem(inputs, config.prm.holdout, seed=config.seed)
    cases = load_cases(config, run, tokenizer)
    apart = {one.problem_id for one in held_out}
    taught = attack_inputs(config, [case for case in cases[problems:] if case.problem.id not in apart], tokenizer)
    lesson = load_lesson(config, run, cases, before.prm_hash, apart, tokenizer)
    mined, sources = lesson.inputs() if lesson and is_learned else ([], {})
    taught += mined
    print(f"policy.attack: {len(train)} paths and {len(taught)} attacks train, {len(held_out)} paths held out")
    for old in (stage.file("harden_fit"), stage.file(HARDENED)):
        shutil.rmtree(old, ignore_errors=True)
    fitted, fit = fit_prm(
        start_prm(config, run, start),
        [*train, *taught],
        held_out,
        fit_settings(config),
        stage.file("harden_fit"),
        lm_head_VH=None if config.prm.surprise else policy_lm_head(start),
        pad_id=tokenizer.pad_token_id,
        show_progress=True,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain = quality_of(stage.file("prm"), held_out, config, tokenizer.pad_token_id)
    quality = fit.quality["calibrated"]
    scorer = PRMScorer(fitted.to(device), fit.calibration, max_batch_tokens=config.prm.max_batch_tokens)
    after = attack_prm(cases[:problems], scorer, tokenizer, config)
    print_report(after)
    hardened = StageFolder(stage.file(HARDENED), "prm")
    save_fitted(fitted, hardened.path, fit.calibration, config)
    tokenizer.save_pretrained(hardened.path)
    write_report(hardened, fit, counts, plain, False)
    row = {
        "f1_before": plain.first_error.f1,
        "f1_after": quality.first_error.f1,
        **{f"untaught_{view}_before": untaught_share(before, view) for view in VIEWS},
        **{f"untaught_{view}_after": untaught_share(after, view) for view in VIEWS},
        "attack_paths": len(taught),
    }
    record = {"taught": HARDENING, "untaught": UNTAUGHT, "brier": quality.brier}
    if lesson:
        own = PRMScorer.load(str(stage.file("prm")), device=device, max_batch_tokens=config.prm.max_batch_tokens)
        figures = {"before": lesson.measure(own), "after": lesson.measure(scorer)}
        row |= {"mined_paths": len(mined), **lesson_row(**figures)}
        record |= {"learned": {"labels": sources, **figures}}
    record |= {**row, "threshold": quality.threshold, "after": after.to_row()}
    write_atomic(stage.file(RECORD), json.dumps(record, indent=1, allow_nan=False))
    shutil.rmtree(stage.file("harden_fit"), ignore_errors=True)
    return row


def take(run: Run) -> dict[str, Any]:
    """Let ``3_prm/hardened`` stand in for ``3_prm/prm``, which is kept as ``3_prm/unhardened``.

    A ``take`` that was killed is finished by the next one.

    Raises:
        InputError: there is no hardened PRM, or ppo of this round has begun with the other one.
    """
    stage = run.stage("prm")
    if not stage.is_done:  # a ``take`` that was killed leaves another PRM than DONE has the checksums of
        run.require("prm")
    if not stage.file(RECORD).is_file():
        raise InputError(f"{stage.file(RECORD)}: no hardened PRM; add --harden")
    if run.stage("ppo").file("config.json").is_file():
        raise InputError(f"{run.stage('ppo').path}: ppo has begun with the PRM as it is; use another RUN")
    record = json.loads(stage.file(RECORD).read_text(encoding="utf-8"))
    if stage.file(HARDENED).is_dir():
        if stage.file("prm").is_dir():
            shutil.rmtree(stage.file(PLAIN), ignore_errors=True)
            stage.file("prm").rename(stage.file(PLAIN))
        stage.file(HARDENED).rename(stage.file("prm"))
    write_atomic(stage.file(REPORT), json.dumps(record["after"], indent=1, allow_nan=False))
    summary = {**stage.summary, "first_error_f1": record["f1_after"], "brier": record["brier"]}
    summary |= {"threshold": record["threshold"], "hardened": True}
    others = {name: one for name, one in summary.get(SUMS, {}).items() if not name.startswith("prm/")}
    summary |= {SUMS: others | payload_sums(stage.path, ("prm",))}
    write_atomic(stage.file("DONE"), json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False))
    return {"taken": True}
