"""NaN and inf written at every point of an update, on the only rank and on one rank of two: each is caught, counted,
leaves a box that the replay reproduces, and a run that trained nothing is never a finished one.
"""

from __future__ import annotations

import json

import pytest
import torch
from fault_toys import POINTS, VALUES, boxes, run_point, run_two_ranks, save_toy_policy
from policy_toys import toy_model

from common.errors import RunError
from common.models import first_nonfinite, weights_hash
from policy.replay import replay
from policy.train import refuse_untrained

CASES = [(point, value) for point in POINTS for value in ("nan", "inf")] + [("new", "-inf"), ("gradient", "-inf")]
WRITTEN = {
    "prm logit": "rank {}: PRM scores",
    "new": "rank {}, micro-batch 0: new log-probs",
    "gradient": "rank {}: gradient of model.norm.weight",
}
"""Points whose value no computation gives: the replay says so and goes on from it."""
FIRST = {
    "prm weight": ("prm weight", "score.weight"),
    "prm logit": ("score", "PRM score of step"),
    "old": ("input", "old log-probs"),
    "reference": ("input", "reference log-probs"),
    "new": ("term", "new log-probs"),
    "gradient": ("gradient", "model.norm.weight"),
    "weight": ("weight", "model.layers.1.mlp.up_proj.weight"),
}
"""Stage and name of the first non-finite tensor."""
KIND = {"prm weight": "score", "prm logit": "score", "gradient": "gradient"}


def assert_replayed(folder, point, rank):
    """The box of the first faulty update is reproduced, and its fault named."""
    update = 0 if point.startswith("prm") else 1
    found = replay(folder / "boxes" / f"blackbox-{update}")
    assert (found.reproduced, found.exact, found.differs) == (True, True, ())
    assert found.written == ((WRITTEN[point].format(rank),) if point in WRITTEN else ())
    stage, name = FIRST[point]
    assert (found.first["stage"], found.first["rank"]) == (stage, rank)
    assert found.first["name"].startswith(name)
    return found


@pytest.mark.parametrize(("point", "value"), CASES)
def test_fault_on_the_only_rank(tmp_path, point, value):
    trainer = run_point(tmp_path, point, VALUES[value])
    assert trainer.blackbox.counts[KIND.get(point, "ratio")] >= 1
    if point.startswith("prm"):
        assert trainer.skipped_updates == 0  # the path trains on its outcome
        assert sum(row.get("rollout/fallbacks", 0) for row in trainer.state.log_history) >= 1
    else:
        assert trainer.skipped_updates == trainer.blackbox.counts[KIND.get(point, "ratio")]
    if point == "weight":
        assert trainer.notes[-1].startswith("ended: 3 updates in a row")
    else:
        refuse_untrained(trainer, weights_hash(toy_model()))  # the other updates did train
        assert first_nonfinite(trainer.model.named_parameters()) is None
    found = assert_replayed(tmp_path, point, 0)
    if point in ("old", "reference", "new"):
        assert found.first["path_id"] == trainer.hit


@pytest.mark.parametrize("point", ["reference", "new", "gradient", "weight"])
def test_run_whose_only_update_had_the_fault_is_never_a_finished_one(tmp_path, point):
    one_update = {"steps_per_generation": 2, "num_iterations": 1, "max_steps": 1, "gradient_accumulation_steps": 2}
    trainer = run_point(tmp_path, point, VALUES["nan"], arguments=one_update, at_update=0)
    assert trainer.skipped_updates == 1 or trainer.notes[-1].startswith("ended: ")
    with pytest.raises(RunError, match=r"nothing was trained: 1 of 1 updates skipped"):
        refuse_untrained(trainer, weights_hash(toy_model()))
    assert boxes(tmp_path)[0] == "blackbox-0"


RANK_SCRIPT = """
import json, os, pathlib, sys
import torch
torch.set_num_threads(1)
from common.models import weights_hash
from fault_toys import VALUES, run_point
folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
short = {"num_iterations": 1, "max_steps": 2, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
for case in json.loads((folder / "cases.json").read_text()):
    point, value = case.split(":")
    trainer = run_point(folder / case, point, VALUES[value] if rank == 1 else None, arguments=short)
    found = {
        "skipped": trainer.skipped_updates,
        "counts": dict(trainer.blackbox.counts),
        "weights": weights_hash(trainer.model),
        "steps": trainer.state.global_step,
        "ended": next((note for note in trainer.notes if note.startswith("ended")), None),
        "ranks": trainer.accelerator.num_processes,
    }
    (folder / case / f"rank{rank}.json").write_text(json.dumps(found))
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_fault_on_one_rank_of_two(tmp_path):
    """Both ranks skip the same update, count the same, keep equal weights, and one box holds both."""
    cases = [f"{point}:{value}" for point, value in zip(POINTS, ("nan", "inf") * len(POINTS), strict=False)]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    save_toy_policy(tmp_path / "policy")
    run_two_ranks(RANK_SCRIPT, tmp_path, timeout=280)
    for case in cases:
        point, folder = case.split(":")[0], tmp_path / case
        told = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
        assert told[0]["ranks"] == 2
        assert {key: told[0][key] for key in ("skipped", "counts", "steps")} == {
            key: told[1][key] for key in ("skipped", "counts", "steps")
        }
        assert told[0]["counts"][KIND.get(point, "ratio")] == 1
        assert told[0]["skipped"] == (0 if point.startswith("prm") else 1)
        assert told[0]["weights"] != weights_hash(toy_model())
        if point == "weight":  # the weights of rank 1 are broken: both ranks end the run
            assert all("is not finite" in one["ended"] for one in told)
        else:
            assert told[0]["weights"] == told[1]["weights"]
            assert told[0]["ended"] is None
        assert_replayed(folder, point, 1)


def test_clipping_is_torchs_and_leaves_a_broken_gradient_alone():
    from policy.gradients import clip, nonfinite_gradients

    for seed in range(3):
        one, other = toy_model(), toy_model()
        generator = torch.Generator().manual_seed(seed)
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        wanted = torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        assert torch.equal(clip(one, 1.0), wanted)
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    one.lm_head.weight.grad[1, 1] = torch.nan
    assert clip(one, 1.0).isnan()
    assert list(nonfinite_gradients(one)) == ["lm_head.weight"]
    assert one.lm_head.weight.grad.isnan().sum() == 1
