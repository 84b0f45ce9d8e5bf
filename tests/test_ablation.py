"""The ablation harness with stand-ins for stages and jobs; its aggregation against numbers worked out by hand."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench import ablation, ablation_stages
from bench.ablation import parse, run_ablation
from bench.ablation_meter import Meter
from bench.ablation_results import CurvePoint, JobResult, Milestone, StageCost, TestScores
from bench.ablation_spec import JobSpec, job_settings
from bench.ablation_summary import batches_to_reach, compare, cost, mean_curve, reach, two_level_interval
from bench.ablation_table import _trace_rows
from bench.arms import choose, load_arms
from common.config import load_config
from common.errors import InputError
from common.runs import Run, write_atomic

PROJECT = Path(__file__).parent.parent
MICRO = str(PROJECT / "configs" / "micro.yaml")


def scores(*values, batch=4, wall=40.0, ended_by="milestone"):
    """Test scores whose greedy and sampled values are the same."""
    return TestScores(batch, wall, wall / 2, tuple(values), tuple(values), ended_by)


def job(arm="default", seed=0, curve=((0, 0.2), (4, 0.6)), tests=None, parts=None, rate=1e-4):
    """A result with 10 wall seconds and 24 rollouts a batch."""
    points = tuple(CurvePoint(batch, 10.0 * batch, 5.0 * batch, value, value) for batch, value in curve)
    return JobResult(arm, seed, rate, points, tests or {"rollouts": scores(0.0, 1.0)}, parts or {}, 24, {})


# ---- arms ----


@pytest.mark.parametrize("name", load_arms())
def test_every_arm_is_a_valid_configuration(name):
    arm = load_arms()[name]
    plain, changed = load_config(MICRO), load_config(MICRO, list(arm.overrides))
    assert bool(arm.overrides) == (changed.model_dump() != plain.model_dump()) or name in (
        "delta_immediate",
        "moving_average",
        "normalised",
        "flat",
    )
    assert arm.stage_overrides == (["data.after_error=ignore"] if name == "after_error_ignore" else [])


def test_arms_that_cannot_be_compared_or_do_not_exist_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"--arms orcale: no such arm; is 'oracle' meant\?"):
        choose(["orcale"], load_arms())
    for text, message in (
        ("fast: {about: x, set: [ppo.learning_rate=1]}", "arm fast: 'ppo.learning_rate=1' is the same for all arms"),
        ("odd: {about: x, process: magic}", "arm odd: .*'prm', 'oracle' or 'none'"),
    ):
        tmp_path.joinpath("arms.yaml").write_text(text)
        with pytest.raises(InputError, match=message):
            load_arms(tmp_path / "arms.yaml")


# ---- aggregation ----


def test_interval_over_two_seeds_by_hand():
    """d = 0 and 1: the mean of two drawn seeds is 0, 1/2, 1 with chances 1/4, 1/2, 1/4."""
    found = two_level_interval(np.array([[0.0], [1.0]]))
    assert (found.value, found.ci95) == (0.5, (0.0, 1.0))


def test_interval_has_the_variance_of_both_levels():
    """d_sp = a_s + b_p: the bootstrap mean has variance var(a)/S + var(b)/P, 0.3 and 0.1 of it alone too small."""
    draw = np.random.default_rng(0)
    a_S, b_P = draw.normal(0, 1, 30), draw.normal(0, 2, 60)
    low, high = two_level_interval(a_S[:, None] + b_P[None, :], num_resamples=4000).ci95
    wanted = 2 * 1.96 * np.sqrt(a_S.var() / 30 + b_P.var() / 60)
    assert high - low == pytest.approx(wanted, rel=0.05)


def test_interval_of_one_seed_is_over_problems_and_unjudged_problems_are_left_out():
    same = two_level_interval(np.array([[0.25, 0.25, np.nan]]))
    assert (same.value, same.ci95) == (0.25, (0.25, 0.25))
    assert two_level_interval(np.array([[np.nan, 1.0], [1.0, np.nan]])).reason == (
        "no test problem was judged in every job"
    )


def test_comparison_by_hand():
    """Arm 1, 1 | 0, 1 against reference 0, 1 | 0, 1: means 0.75 and 0.5, ahead in the first seed only."""
    mine = {0: scores(1.0, 1.0), 1: scores(0.0, 1.0, batch=6, ended_by="cap")}
    theirs = {0: scores(0.0, 1.0), 1: scores(0.0, 1.0)}
    found = compare(mine, theirs, num_resamples=500)
    assert found.value == {"greedy": 0.75, "sampled": 0.75}
    assert found.difference["sampled"].value == 0.25
    assert found.difference["sampled"].ci95 == (0.0, 1.0)  # one problem drawn twice in seed 0 twice: 1; else down to 0
    assert (found.ahead, found.seeds, found.batches, found.ended_by, found.left_out) == (1, 2, 5.0, {1: "cap"}, 0)
    assert compare(theirs, None, num_resamples=1).difference is None


def test_comparison_wants_the_same_problems():
    with pytest.raises(ValueError, match=r"tested on \[1, 2\] problems; want the same"):
        compare({0: scores(1.0), 1: scores(1.0, 0.0)}, None, num_resamples=1)


def test_first_crossing_by_hand():
    curve = [(0, 0.2), (4, 0.4), (8, 0.6), (12, 0.5)]
    assert batches_to_reach(curve, 0.5) == pytest.approx(6.0)  # half way from 0.4 to 0.6
    assert batches_to_reach(curve, 0.2) == 0.0
    assert batches_to_reach(curve, 0.61) is None


def test_rollouts_to_reach_the_reference_by_hand():
    """The reference ends at 0.6 after 4 batches; the arm, from 0.2 to 1.0 in 4, is there after 2: half the rollouts."""
    quick = job(curve=((0, 0.2), (4, 1.0)))
    found = reach([quick], [job("trl_grpo", curve=((0, 0.2), (4, 0.6), (8, 0.9)))], batches=4, label_rollouts=24.0)
    assert dataclasses.astuple(found) == pytest.approx((0.6, True, 48.0, 0.5, 0.75))
    never = reach([job(curve=((0, 0.2), (4, 0.5)))], [job()], batches=4, label_rollouts=0.0)
    assert (never.has_gain, never.rollouts, never.charged_share) == (True, None, None)
    nothing = reach([quick], [job(curve=((0, 0.2), (4, 0.2)))], batches=4, label_rollouts=0.0)
    assert (nothing.has_gain, nothing.rollouts) == (False, None)


def test_mean_curve_is_over_the_batches_all_jobs_have():
    found = mean_curve([job(), job(curve=((0, 0.4), (2, 0.5), (4, 0.8)))])
    assert [batch for batch, _ in found] == [0, 4]
    assert [accuracy for _, accuracy in found] == pytest.approx([0.3, 0.7])


def test_cost_by_hand():
    parts = {"sampling": 6.0, "grading": 1.0, "logprobs": 1.0, "prm": 1.0, "update": 1.0}
    results = [job(seed=0, parts=parts), job(seed=1, parts=parts)]
    stages = {0: StageCost(100, 60.0, 50.0, 20.0, 15.0), 1: StageCost(200, 100.0, 90.0, 40.0, 25.0, False)}
    found = cost(results, stages, sharing=4, fitting=2, batches=4)
    assert (found.rollouts, found.label_rollouts) == (96.0, 150.0)
    assert (found.train, found.stages) == ({"wall": 40.0, "cpu": 20.0}, {"wall": 80.0, "cpu": 70.0})
    assert (found.fit, found.batch) == ({"wall": 30.0, "cpu": 20.0}, {"wall": 10.0, "cpu": 5.0})
    assert found.amortised == {"wall": 40.0 + 50.0 / 4 + 30.0 / 2, "cpu": 20.0 + 50.0 / 4 + 20.0 / 2}
    assert found.prm_share == pytest.approx(0.1)
    assert found.is_whole is False
    assert cost([job()], {0: StageCost()}, sharing=0, fitting=0, batches=4).prm_share is None


# ---- milestones ----


def test_milestone_in_seconds_is_the_nearest_end_of_a_batch():
    """Batches of 4 s and 11 s allowed: 12 s is nearer than 8 s; 9 s allowed: 8 s is."""
    ends = [{"wall": 4.0 * k, "cpu": 1.0 * k} for k in range(5)]
    for allowed, wanted in ((11.0, 3), (9.0, 2), (0.0, 0), (-5.0, 0)):
        milestone = Milestone("seconds", seconds=allowed)
        assert next(k for k in range(5) if milestone.is_reached(k, ends[k])) == wanted
    assert Milestone("seconds", seconds=3.0, clock="cpu").is_reached(3, ends[3])
    assert not Milestone("seconds", seconds=3.0, clock="cpu").is_reached(2, ends[2])
    assert Milestone("rollouts", batches=2).is_reached(2, ends[2])


def toy_meter(folder, milestones, **changes):
    """A meter of a policy whose accuracy is a tenth of the batch it stands at; 4 wall seconds a batch."""
    place = {"batch": 0}
    settings = {
        "updates": 2,
        "last_batch": 6,
        "eval_every": 2,
        "milestones": milestones,
        "validate": lambda: {"greedy": place["batch"] / 10, "sampled": place["batch"] / 10},
        "test": lambda: ((place["batch"] / 10,), (place["batch"] / 10,)),
    }
    meter = Meter(folder, **(settings | changes))

    def train(until):
        while place["batch"] < until:
            place["batch"] += 1
            meter.watch.seconds = {"wall": meter.watch.seconds["wall"] + 4.0, "cpu": place["batch"] * 1.0}
            if meter.batch_ended(place["batch"]):
                return True
        return False

    def stand_at(batch):
        place["batch"] = batch
        return meter

    return meter, train, stand_at


def test_meter_validates_tests_and_ends(tmp_path):
    milestones = [Milestone("base", batches=0), Milestone("rollouts", batches=3), Milestone("seconds", seconds=17.0)]
    meter, train, _ = toy_meter(tmp_path, milestones)
    meter.start_anew()
    meter.record(0, {"greedy": 0.0, "sampled": 0.0})
    assert meter.look(0) is False
    assert train(6) is True
    found = meter.tests()
    assert {name: (test.batch, test.greedy, test.ended_by) for name, test in found.items()} == {
        "base": (0, (0.0,), "milestone"),
        "rollouts": (3, (0.3,), "milestone"),
        "seconds": (4, (0.4,), "milestone"),
    }
    assert [(point.batch, point.wall) for point in meter.curve] == [(0, 0.0), (2, 8.0), (4, 16.0)]


def test_meter_continues_after_a_kill(tmp_path):
    """Killed after batch 3 with its last checkpoint at 2: the test at 3 is made again, the one at 1 is kept."""
    milestones = [Milestone("early", batches=1), Milestone("rollouts", batches=3), Milestone("late", batches=4)]
    meter, train, _ = toy_meter(tmp_path, milestones)
    meter.record(0, {"greedy": 0.0, "sampled": 0.0})
    assert train(3) is False
    kept = tmp_path.joinpath("test-early.json").read_bytes()
    meter, train, stand_at = toy_meter(tmp_path, milestones)
    meter.continue_from(2)
    stand_at(2)
    assert [one.name for one in meter.pending] == ["rollouts", "late"]
    assert meter.watch.seconds == {"wall": 8.0, "cpu": 2.0}
    assert train(6) is True
    assert tmp_path.joinpath("test-early.json").read_bytes() == kept
    assert [(point.batch, point.wall) for point in meter.curve] == [(0, 0.0), (2, 8.0), (4, 16.0)]
    with pytest.raises(InputError, match="no validation after batch 3"):
        meter.continue_from(3)


@pytest.mark.parametrize(("changes", "reason"), [({"last_batch": 2}, "cap"), ({"stopped_by": lambda: "KL"}, "KL")])
def test_run_that_ends_early_is_tested_where_it_ends(tmp_path, changes, reason):
    meter, train, _ = toy_meter(tmp_path, [Milestone("seconds", seconds=100.0)], **changes)
    assert train(2) is True
    assert meter.tests()["seconds"].ended_by == reason


# ---- harness ----


class StandIn:
    """In the place of stages and jobs: writes what they would. Accuracy of an arm rises with the learning rate to 1e-3.

    Attributes:
        calls: what was run. fail_at: the call that is killed, counted from 0.
    """

    def __init__(self, fail_at=None):
        self.calls, self.fail_at, self.specs = [], fail_at, []

    def __call__(self, command, what):
        if len(self.calls) == self.fail_at:
            self.fail_at = None
            raise InputError("killed")
        self.calls.append(what)
        if what.startswith("stage"):
            run = Run(Path(command[command.index("--run") + 1]))
            for name in {"data": ("sample", "label"), "sft": ("sft",), "prm": ("prm",)}[what.split()[1]]:
                folder = run.stage(name).path
                folder.mkdir(parents=True)
                write_atomic(folder / "DONE", json.dumps({"seconds": 10.0, "pool": 48, "kept": 18}))
                write_atomic(folder / "metrics.json", "{}")
            return
        spec = JobSpec.read(Path(command[-1]))
        self.specs.append(spec)
        rate = spec.load().ppo.learning_rate
        right = (1.0 if rate == 1e-3 else 0.5) if spec.arm == "default" else 0.25
        tests = {one.name: scores(right, right, batch=2, wall=100.0) for one in spec.milestones}
        curve = ((0, 0.2), (2, right))
        result = job(spec.arm, spec.seed, curve, tests, rate=rate)
        result = dataclasses.replace(result, settings=job_settings(spec.load(), spec.samples))
        write_atomic(Path(spec.folder) / "result.json", result.to_json())


@pytest.fixture
def harness(monkeypatch, tmp_path):
    """Return (stand-in, run): ``run(*more arguments)`` is an ablation of two arms and two seeds."""
    stand_in = StandIn()
    monkeypatch.setattr(ablation, "run_command", stand_in)
    monkeypatch.setattr(ablation_stages, "run_command", stand_in)

    def run(*more):
        arguments = ["--config", MICRO, "--arms", "default", "trl_grpo", "--reference", "trl_grpo", "--seeds", "0", "1"]
        arguments += ["--out", str(tmp_path / "out"), "ppo.batches=2", *more]
        return run_ablation(parse(arguments), arguments)

    return stand_in, run


def test_stages_are_shared_jobs_run_once_and_the_reference_sets_the_seconds(harness):
    stand_in, run = harness
    report = run()
    stages = [f"stage {stage} of seed {seed}" for seed in (0, 1) for stage in ("data", "prm")]
    jobs = [f"{arm}, seed {seed}, learning rate 0.0001" for seed in (0, 1) for arm in ("trl_grpo", "default")]
    assert stand_in.calls == stages + jobs
    wanted = {"rollouts": None, "seconds": 100.0 - 30.0, "training_seconds": 100.0}  # three stages of 10 s are charged
    assert {one.name: one.seconds for one in stand_in.specs[1].milestones} == wanted
    again = run()
    assert len(stand_in.calls) == 8
    assert again.rows == report.rows
    found = report.rows["default"]
    assert found.cost.label_rollouts == 48 * 4 + 18 * (8 - 4)
    assert found.comparisons["seconds"].difference["sampled"].ci95 == (0.25, 0.25)
    assert found.reach.share == pytest.approx((0.25 - 0.2) / (0.5 - 0.2))


def test_arms_from_a_supervised_start_pay_for_its_paths_and_those_from_the_base_do_not(harness):
    stand_in, run = harness
    report = run("--arms", "trl_grpo", "trl_grpo_sft", "default", "--seeds", "0", "sft.source=right_paths")
    assert stand_in.calls[:3] == [f"stage {stage} of seed 0" for stage in ("data", "sft", "prm")]
    assert [what.split(",")[0] for what in stand_in.calls[3:]] == ["trl_grpo", "trl_grpo_sft", "default"]
    seconds = {one.arm: {m.name: m.seconds for m in one.milestones} for one in stand_in.specs}
    assert seconds["trl_grpo"] == {"base": None, "rollouts": None}
    # sampling, labelling and start take 10 s each, and so does the fit of the PRM
    assert seconds["trl_grpo_sft"] == {"rollouts": None, "seconds": 100.0 - 30.0, "training_seconds": 100.0}
    assert seconds["default"] == {"rollouts": None, "seconds": 100.0 - 40.0, "training_seconds": 100.0}
    paths = 48 * 4 + 18 * (8 - 4)
    assert {name: row.cost.label_rollouts for name, row in report.rows.items()} == {
        "trl_grpo": 0,
        "trl_grpo_sft": paths,
        "default": paths,
    }
    assert (report.rows["default"].cost.fit["wall"], report.rows["trl_grpo_sft"].cost.fit["wall"]) == (10.0, 0.0)


def test_another_arm_than_the_reference_can_set_the_seconds(harness):
    stand_in, run = harness
    report = run("--seeds", "0", "--seconds-of", "default")
    assert [what.split(",")[0] for what in stand_in.calls[2:]] == ["default", "trl_grpo"]
    seconds = {one.arm: {m.name: m.seconds for m in one.milestones} for one in stand_in.specs}
    assert seconds["default"] == {"rollouts": None}
    assert seconds["trl_grpo"] == {"base": None, "rollouts": None, "seconds": 130.0, "training_seconds": 100.0}
    assert report.rows["trl_grpo"].comparisons["seconds"].difference is None
    assert report.rows["default"].comparisons["seconds"].difference["sampled"].ci95 == (0.25, 0.25)
    assert "the seconds (wall) that `default` takes" in report.markdown
    with pytest.raises(InputError, match="--seconds-of oracle: not among --arms"):
        run("--seconds-of", "oracle")


def test_monitors_of_the_training_are_shown_by_parts():
    values = {"rollout/steps": (4.0, 2.0), "prm/mean_score": (0.5, 0.7), "verdict/CORRECT": (0.0, 0.0)}
    one = dataclasses.replace(job("default", 0, ((0, 0.2), (2, 0.5)), {}), traces=values)
    report = SimpleNamespace(head={"batches": 2}, rows={"default": None}, jobs={"default": [one]})
    assert _trace_rows(report)[2:] == ["| default | steps | 4.00 | 2.00 |", "| default | PRM score | 0.50 | 0.70 |"]


def test_killed_ablation_continues(harness):
    stand_in, run = harness
    stand_in.fail_at = 6
    with pytest.raises(InputError, match="killed"):
        run()
    run()
    assert len(stand_in.calls) == len(set(stand_in.calls)) == 8


def test_learning_rates_are_screened_on_the_first_seed_for_every_arm(harness):
    stand_in, run = harness
    report = run("--learning-rates", "1e-4", "1e-3", "3e-3")
    screened = [what for what in stand_in.calls if "seed 0, learning rate" in what]
    assert len(screened) == 2 * 3 + 1  # the winner of `default` goes on to its budgets in seconds
    assert report.rows["default"].learning_rate == 1e-3
    assert report.rows["default"].screen == {1e-4: 0.5, 1e-3: 1.0, 3e-3: 0.5}
    assert report.rows["default"].is_rate_at_edge is False
    assert report.rows["trl_grpo"].learning_rate == 1e-4  # a tie: the lowest
    assert report.rows["trl_grpo"].is_rate_at_edge is True
    assert "trl_grpo: the best learning rate is at the edge of the search; widen it." in report.markdown


def test_jobs_of_other_settings_are_refused(harness):
    _, run = harness
    run()
    with pytest.raises(InputError, match=r"made with batches = 2, now it is 4; use another --out"):
        run("ppo.batches=4")


def test_unmatched_comparisons_are_refused(harness):
    _, run = harness
    with pytest.raises(InputError, match=r"ppo.schedule = 'linear': its length depends on the budget"):
        run("ppo.schedule=linear")
    with pytest.raises(InputError, match="--reference oracle: not among --arms"):
        run("--reference", "oracle")
    with pytest.raises(InputError, match=r"sft.source = 'solutions': not every arm would learn from them"):
        run("sft.source=solutions")


def test_table_by_hand(harness):
    _, run = harness
    report = run()
    row = "| default | 50.0 | **+25.0 [+25.0, +25.0]** | 50.0 | **+25.0 [+25.0, +25.0]** | 2/2 | 2.0 |"
    assert report.markdown.count(row) == 3
    assert "| trl_grpo | 25.0 | – | 25.0 | – | reference | 2.0 |" in report.markdown
    assert "| default | 0.0001 | 20 / 10 | 30 (10) | 50 | 264 | 10.00 | – | 8 (17 %) | 567 % |" in report.markdown
    assert "2 seeds: a bootstrap over so few makes intervals too narrow." in report.markdown
    saved = json.loads(report.to_json())
    assert saved["arms"]["default"]["comparisons"]["rollouts"]["difference"]["greedy"]["value"] == 0.25
    assert JobResult.from_row(saved["jobs"]["default"][0]) == report.jobs["default"][0]
    assert saved["head"]["versions"]["trl"].startswith("1.")


# ---- seeds of earlier ablations ----


def test_seeds_of_an_earlier_ablation_are_added(harness, tmp_path):
    stand_in, run = harness
    earlier = run()
    saved = tmp_path / "ablation.json"
    saved.write_text(earlier.to_json())
    number = len(stand_in.calls)
    both = run("--seeds", "2", "--with", str(saved))
    assert [what for what in stand_in.calls[number:] if "seed 2" not in what] == []
    assert both.head["seeds"] == [0, 1, 2]
    assert [one.seed for one in both.jobs["default"]] == [0, 1, 2]
    assert both.rows["default"].comparisons["seconds"].seeds == 3
    assert sorted(both.costs["default"]) == [0, 1, 2]
    again = tmp_path / "three.json"
    again.write_text(both.to_json())
    assert run("--seeds", "3", "--with", str(again)).head["seeds"] == [0, 1, 2, 3]


def test_seeds_of_an_earlier_ablation_must_match(harness, tmp_path):
    _, run = harness
    saved = tmp_path / "ablation.json"
    row = json.loads(run().to_json())
    saved.write_text(json.dumps(row))
    with pytest.raises(InputError, match="seed 0 is in two of the results; leave it out of --seeds"):
        run("--with", str(saved))
    with pytest.raises(InputError, match=r"trl_grpo, seed 0 ran with ppo.kl_coef = .*, now it is 0.5"):
        run("--seeds", "2", "ppo.kl_coef=0.5", "--out", str(tmp_path / "new"), "--with", str(saved))
    with pytest.raises(InputError, match="no such file"):
        run("--seeds", "2", "--with", str(tmp_path / "none.json"))
    del row["jobs"]["default"]
    saved.write_text(json.dumps(row))
    with pytest.raises(InputError, match=r"KeyError: 'default'; want an ablation\.json with all arms"):
        run("--seeds", "2", "--with", str(saved))
