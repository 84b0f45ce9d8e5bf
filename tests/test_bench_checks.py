"""Pure parts of the benches that check a claim: speed against TRL, collapse and return, labels of the oracle."""

import json
from types import SimpleNamespace

import pytest

from bench.collapse import Jolt, is_good, rewind
from bench.oracle_labels import relabelled
from bench.speed_trl import BatchSeconds, Recorded
from common.records import IGNORED, LabelledPath
from common.runs import Run
from tests.eval_records import path

STORY = "Ann has 12 pens. Ann gets 5 more. Ann now has 4 more than Ben. How many pens does Ben have?"


def labelled(*steps):
    count = len(steps)
    return LabelledPath(path(steps=steps), (1.0,) * count, None, (0,) * count, ("text",) * count, "frequency:forward")


@pytest.mark.parametrize(
    ("steps", "after_error", "labels", "first"),
    [
        (["12+5=17", "17-4=13"], "negative", (1.0, 1.0), None),
        (["12+5=17", "17+4=21"], "negative", (1.0, 0.0), 1),
        (["12+5=18", "18-4=14"], "negative", (0.0, 0.0), 0),
        (["12+5=18", "18-4=14"], "ignore", (0.0, IGNORED), 0),
        (["so it is", "17-4=13"], "negative", (IGNORED, IGNORED), None),
    ],
)
def test_labels_of_the_oracle(steps, after_error, labels, first):
    found = relabelled(labelled(*steps), STORY, after_error)
    assert (found.labels, found.first_error, found.source) == (labels, first, "oracle")


def test_recorded_paths_are_handed_out_by_prompt_and_never_made_up():
    recorded = Recorded({(1, 2): ["a", "b"], (3,): ["c", "d"]})
    assert recorded.sample([[3], [1, 2]], n=2, temperature=1.0, seed=5) == [["c", "d"], ["a", "b"]]
    with pytest.raises(KeyError):
        recorded.sample([[4]], n=2)
    with pytest.raises(ValueError, match=r"groups of \[2\] paths; wanted 3"):
        recorded.sample([[3]], n=3)


def test_seconds_of_a_batch_lie_between_its_first_and_last_update(monkeypatch):
    now = iter([10.0, 13.0, 20.0, 24.0])
    monkeypatch.setattr("bench.speed_trl.CLOCKS", {"wall": lambda: next(now)})
    meter = BatchSeconds(updates=2)
    for update in range(4):
        meter.on_step_begin(None, SimpleNamespace(global_step=update), None)
        meter.on_step_end(None, SimpleNamespace(global_step=update + 1), None)
    assert meter.seconds == {"wall": [3.0, 4.0]}


def test_jolt_hits_one_update():
    optimizer, seen = SimpleNamespace(param_groups=[{"lr": 1.0}]), []
    for update in range(4):
        optimizer.param_groups[0]["lr"] = 1.0
        Jolt(3, 100.0).on_step_begin(None, SimpleNamespace(global_step=update), None, optimizer=optimizer)
        seen.append(optimizer.param_groups[0]["lr"])
    assert seen == [1.0, 1.0, 100.0, 1.0]


def test_rewind_keeps_the_good_checkpoint_and_those_before(tmp_path):
    run = Run(tmp_path)
    stage = run.stage("ppo")
    for update in (4, 8, 12, 100):
        stage.file(f"checkpoints/checkpoint-{update}").mkdir(parents=True)
    stage.file("DONE").write_text(json.dumps({"seconds": 1}))
    rewind(run, 8)
    assert sorted(one.name for one in stage.file("checkpoints").iterdir()) == ["checkpoint-4", "checkpoint-8"]
    assert not stage.is_done


GOOD = {
    "is_rolled_back": True,
    "batches_until_alarm": 3,
    "is_hash_equal": True,
    "pass1_greedy": {"is_inside": True},
    "pass1_sampled": {"is_inside": True},
}


@pytest.mark.parametrize(
    "fault",
    [
        {"is_rolled_back": False},
        {"batches_until_alarm": 4},
        {"is_hash_equal": False},
        {"pass1_greedy": {"is_inside": False}},
        {"pass1_sampled": {"is_inside": False}},
    ],
)
def test_each_broken_promise_fails_the_collapse_bench(fault):
    assert is_good(GOOD)
    assert not is_good(GOOD | fault)
