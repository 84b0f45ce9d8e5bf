"""Attack the round's frozen PRM: ``python -m policy.attack [--problems N] [--learn] [--harden] [--take]``.

right sampled paths -> each attacked by every family -> tokenized, cut, graded, scored as a rollout
  -> does the attacked path earn more than the honest one? -> table, 3_prm/attacks.json, one JSON line
``--learn``: a policy trained on the PRM alone shows what it would learn to write (``policy.attack_learned``).
``--harden``: half of the families are taught as negatives (``policy.harden``), the other half is measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import torch

from common.cli import read_options, seed_everything, stage_parser
from common.config import Config
from common.errors import InputError, RunError
from common.models import load_tokenizer, locate
from common.runs import Run
from policy.attack_cases import load_cases
from policy.attack_learn import BATCHES
from policy.attack_learned import learned_attack, print_learned, summary
from policy.attack_report import REPORT, AttackReport, attack_prm, print_report, write_attacks
from policy.harden import harden, take
from policy.models import load_scorer
from prm.score import PRMScorer

SECTIONS = ("base", "lora", "data", "prm", "ppo")


def attack_run(config: Config, run: Run, problems: int) -> AttackReport:
    """Measure, print and write the attacks on the PRM of a round.

    Raises:
        InputError: the round has no finished PRM or no right path to attack.
    """
    stage = run.require("prm")
    tokenizer = load_tokenizer(locate(run.start_model(config)))
    cases = load_cases(config, run, tokenizer)[:problems]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scorer = PRMScorer.load(str(stage.file("prm")), device=device, max_batch_tokens=config.prm.max_batch_tokens)
    report = attack_prm(cases, scorer, tokenizer, config)
    print_report(report)
    write_attacks(report, stage.file(REPORT))
    return report


def learn_run(config: Config, run: Run, batches: int) -> dict[str, object]:
    """Train a policy on the round's PRM alone, print and write what it learned to write; see ``learned_attack``.

    Raises:
        RuntimeError: the PRM's weights changed; it must stay frozen.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scorer = load_scorer(config, run, device)
    before = scorer.weights_hash()
    row = learned_attack(config, run, scorer.score, scorer.calibration.threshold, before, batches)
    if scorer.weights_hash() != before:
        raise RuntimeError("the PRM's weights changed during the learned attack; it must stay frozen")
    print_learned(row)
    return summary(row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack a round's PRM; return the exit code (2: what the user can mend, 3: a run that failed; one line)."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = stage_parser("policy.attack", __doc__ or "", SECTIONS)
    parser.add_argument("--problems", type=int, default=150, help="honest paths that are attacked, one a problem")
    parser.add_argument("--learn", action="store_true", help="train a policy on the PRM alone and mine what it writes")
    parser.add_argument("--batches", type=int, default=BATCHES, help="generation batches of --learn")
    parser.add_argument("--harden", action="store_true", help="refit the PRM with half of the families as negatives")
    parser.add_argument("--take", action="store_true", help="let the hardened PRM stand in for the round's PRM")
    try:
        row = _run(parser.parse_args(arguments))
    except InputError as error:
        print(f"policy.attack: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"policy.attack: {error}", file=sys.stderr)
        return 3
    print(json.dumps(row))
    return 0


def _run(options: argparse.Namespace) -> dict[str, object]:
    if options.problems < 1:
        raise InputError(f"--problems {options.problems}: must be 1 or more")
    if options.batches < 1:
        raise InputError(f"--batches {options.batches}: must be 1 or more")
    config, run = read_options(options)
    seed_everything(config)
    row: dict[str, object] = {}
    is_measured = options.harden or options.learn or not options.take
    if is_measured:  # a take alone must go on where a killed one left the PRM's folder missing
        report = attack_run(config, run, options.problems)
        row |= {"problems": report.cases, "win_share": report.win_share, "prm": report.prm_hash[:16]}
        if options.learn:
            row |= learn_run(config, run, options.batches)
        if options.harden:
            row |= harden(config, run, report, options.problems, options.learn)
    if options.take:
        row |= take(run)
    return row


if __name__ == "__main__":
    raise SystemExit(main())
