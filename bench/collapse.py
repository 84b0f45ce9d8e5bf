"""Does a run that collapses notice, go back, and end where an undisturbed one does?
``python -m bench.collapse --run RUN [--update 20] [--factor 100]`` on a run whose stages data and prm are finished.

undisturbed: stages ppo and eval of RUN (run when they are not there yet)
jolted:      RUN/jolted, the same stages 1 to 3, learning rate x factor in one update
             -> which alarm, how many generation batches after the jolt, weights = those of the checkpoint it names
continued:   checkpoints behind that one removed, stage ppo started again without the jolt, then eval
             -> its pass@1 against the undisturbed run's 95 % interval

One JSON object; exit code 1 when one of the three is not so.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from common.checkpoints import update_of
from common.cli import seed_everything
from common.config import Config, load_config
from common.models import load_policy, weights_hash
from common.runs import Run
from eval.__main__ import eval_stage
from eval.schema import Metrics, read_record
from policy.train import train_stage


class Jolt(TrainerCallback):
    """Learning rate times ``factor`` in one update (counted from 1)."""

    def __init__(self, update: int, factor: float) -> None:
        self.update, self.factor = update, factor

    def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        if state.global_step == self.update - 1:
            for group in optimizer.param_groups:
                group["lr"] *= self.factor


def fork(run: Run, folder: Path) -> Run:
    """Copy the finished stages before ppo into a run of their own."""
    forked = Run(folder, run.round)
    is_started = run.stage("sft").is_done
    for stage in (*(("sft",) if is_started else ()), "sample", "label", "prm"):
        done = run.require(stage)
        shutil.copytree(done.path, forked.stage(stage).path, dirs_exist_ok=True)
    return forked


def rewind(run: Run, update: int) -> None:
    """Forget what stage ppo did after the checkpoint of ``update``, its end included."""
    stage = run.stage("ppo")
    for path in stage.file("checkpoints").glob("checkpoint-*"):
        if update_of(path) > update:
            shutil.rmtree(path)
    stage.file("DONE").unlink()


def figures(run: Run) -> Metrics:
    return read_record(run.require("eval").file("metrics.json"), Metrics)


def collapse(config: Config, run: Run, update: int, factor: float) -> dict[str, Any]:
    """Run the three; see the top of this file."""
    for stage, work in (("ppo", train_stage), ("eval", eval_stage)):
        if not run.stage(stage).is_done:
            work(config, run)
    undisturbed = figures(run)
    forked = fork(run, run.root / "jolted")
    seed_everything(config)
    train_stage(config, forked, Jolt(update, factor))
    stage = forked.require("ppo")
    notes = [row for row in stage.metrics() if "alarms" in row]
    back = next((row for row in notes if "rollback: weights are those of" in row["alarms"]), None)
    found: dict[str, Any] = {"alarms": [f"{row['step']}: {row['alarms']}" for row in notes]}
    if back is None:
        return found | {"is_rolled_back": False}
    good = stage.file("checkpoints") / back["alarms"].rsplit(" ", 1)[1]
    updates = config.ppo.epochs * config.ppo.minibatches
    found |= {
        "is_rolled_back": True,
        "batches_until_alarm": -(-(back["step"] - update) // updates),
        "good_checkpoint": good.name,
        "is_hash_equal": weights_hash(load_policy(str(stage.file("policy")))) == weights_hash(load_policy(str(good))),
    }
    rewind(forked, update_of(good))
    seed_everything(config)
    train_stage(config, forked)
    eval_stage(config, forked)
    continued = figures(forked)
    for name in ("pass1_greedy", "pass1_sampled"):
        whole, after = getattr(undisturbed.policy, name), getattr(continued.policy, name)
        is_inside = whole.ci95[0] <= after.value <= whole.ci95[1]
        found[name] = {"undisturbed": whole.value, "ci95": whole.ci95, "continued": after.value, "is_inside": is_inside}
    return found


def is_good(found: dict[str, Any]) -> bool:
    return bool(
        found["is_rolled_back"]
        and found["batches_until_alarm"] <= 3
        and found["is_hash_equal"]
        and found["pass1_greedy"]["is_inside"]
        and found["pass1_sampled"]["is_inside"]
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.collapse", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.yaml")
    parser.add_argument("--run", type=Path, required=True, help="run folder with finished stages data and prm")
    parser.add_argument("--update", type=int, default=20, help="update with the wrong learning rate")
    parser.add_argument("--factor", type=float, default=100.0)
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    options = parser.parse_args(argv)
    config = load_config(options.config, options.overrides)
    seed_everything(config)
    found = collapse(config, Run(options.run), options.update, options.factor)
    print(json.dumps(found, indent=1))
    return 0 if is_good(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
