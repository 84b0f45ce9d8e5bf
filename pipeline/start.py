"""``python -m pipeline.start data|prm|ppo --config … --run …``: the supervised start, where it comes before that stage.

``make data``, ``make prm`` and ``make ppo`` call it, so that the four commands are the whole loop also with section
``sft`` on: solutions are learnt before ``data``, the run's own right paths behind it (``pipeline.stages`` has the same
order). Does nothing when section ``sft`` is off, the start is made, or the round is a later one.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence

from common.cli import add_run_options, read_options
from common.config import Config
from common.errors import InputError
from common.runs import Run
from pipeline.stages import stage_command, stages_of_round

BEFORE = ("data", "prm", "ppo")


def is_due(config: Config, run: Run, stage: str) -> bool:
    """True when the supervised start has to be made before ``stage``."""
    stages = stages_of_round(config, run.round)
    return "sft" in stages and stages.index("sft") < stages.index(stage) and not run.stage("sft").is_done


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.start", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=BEFORE, help="the stage that is about to run")
    parser.add_argument("--launch", default="", help="launcher, e.g. 'accelerate launch --config_file …'")
    add_run_options(parser)
    options = parser.parse_intermixed_args(argv)
    try:
        config, run = read_options(options)
    except InputError as error:
        print(f"start: {error}", file=sys.stderr)
        return 2
    if not is_due(config, run, options.stage):
        return 0
    return subprocess.run(
        stage_command("sft", options.config, run, options.overrides, shlex.split(options.launch))
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
