"""From a model that is a function to its report and to the comparison of two models."""

import pytest
from eval_records import SETTINGS, model, path, problem

from common.records import Verdict
from eval.accuracy import compare, difference, model_report
from eval.collect import EvalSettings, choose_temperature, collect
from eval.schema import Figure

PROBLEMS = [problem(i, topic="chain" if i < 4 else "equation", level=2 if i % 2 else 11) for i in range(6)]


def by_temperature(accuracy):
    """A model whose share of right paths depends on the temperature; remembers what it was asked."""
    calls = []

    def sample(asked, n, temperature, seed):
        calls.append((len(asked), n, temperature))
        count = round(accuracy[temperature] * n)
        return [[path("7" if g < count else "8", of=p, name=g) for g in range(n)] for p in asked]

    return sample, calls


def test_report_by_hand():
    report = model_report(model("base", PROBLEMS, 0.25), SETTINGS)
    assert report.pass1_greedy.value == 0.0
    assert report.pass1_sampled.value == pytest.approx(0.25)
    assert report.sampled.pass_at["8"].value == 1.0
    assert report.sampled.pass_at["2"].value == pytest.approx(1 - 15 / 28)
    assert report.majority8.value == 0.0
    assert report.prm_best8.value == 1.0
    assert report.sampled.prm_vote.value == 1.0  # 2 x 0.8 for 7 against 6 x 0.1 for 8
    assert report.process.clean_paths.value == pytest.approx(0.25)
    assert report.process.hidden_errors.value == 0.0
    assert report.process.right_steps.value == pytest.approx((2 * 2 + 6 * 1) / 16)
    assert report.mean_steps.value == 2.0
    assert report.format_rate.value == 1.0
    assert report.verdicts == {**{str(v): 0 for v in Verdict}, "CORRECT": 12, "WRONG": 36}
    assert list(report.by_topic) == ["chain", "equation"]
    assert list(report.by_level) == ["2", "11"]
    assert report.by_topic["chain"].problems == 4
    assert report.by_topic["chain"].pass1_sampled.value == pytest.approx(0.25)


def test_equal_problems_have_no_uncertainty():
    report = model_report(model("base", PROBLEMS, 0.5), SETTINGS)
    assert report.pass1_sampled.ci95 == pytest.approx((0.5, 0.5))


def test_slices_hold_only_their_problems():
    def sample(asked, n, temperature, seed):
        return [[path("7" if p.topic == "chain" else "8", of=p, name=g) for g in range(n)] for p in asked]

    report = model_report(collect("base", PROBLEMS, PROBLEMS, sample, SETTINGS), SETTINGS)
    assert report.by_topic["chain"].pass1_sampled.value == 1.0
    assert report.by_topic["equation"].pass1_sampled.value == 0.0
    assert report.pass1_sampled.value == pytest.approx(4 / 6)


def test_without_prm_and_oracle_every_figure_says_why():
    report = model_report(model("base", PROBLEMS, 0.5, with_prm=False, with_oracle=False), SETTINGS)
    assert report.prm_best8 == Figure.absent("no PRM scores")
    assert report.sampled.prm_vote == Figure.absent("no PRM scores")
    assert report.process.clean_paths == Figure.absent("no oracle for these problems")
    assert report.pass1_sampled.value == 0.5


def test_fewer_paths_than_k_is_said():
    report = model_report(model("base", PROBLEMS, 0.5, settings=EvalSettings(samples=4, resamples=50)), SETTINGS)
    assert report.majority8.reason == "no problem with 8 judged paths"
    assert report.sampled.majority["4"].value is not None


def test_unscored_paths_are_counted():
    def sample(asked, n, temperature, seed):
        return [[path("7", steps=() if g == 0 else ("a",), of=p, name=g) for g in range(n)] for p in asked]

    def score(asked, paths):
        return [[0.5] * len(p.steps) for p in paths]

    report = model_report(collect("base", PROBLEMS, PROBLEMS, sample, SETTINGS, score=score), SETTINGS)
    assert report.paths_without_score == len(PROBLEMS)


def test_best_temperature_is_chosen_on_validation_and_measured_on_test():
    sample, calls = by_temperature({0.0: 0.0, 0.4: 0.75, 1.0: 0.5})
    settings = EvalSettings(temperatures=(1.0, 0.4, 0.0), temperature_samples=4, resamples=50)
    pools = collect("base", PROBLEMS, PROBLEMS[:3], sample, settings)
    assert calls == [(3, 1, 0.0), (3, 4, 0.4), (3, 4, 1.0), (6, 1, 0.0), (6, 8, 1.0), (6, 8, 0.4)]
    report = model_report(pools, settings)
    assert report.best_temperature.temperature == 0.4
    assert report.pass1_best_temperature.value == pytest.approx(0.75)
    assert report.validation_by_temperature["0.4"].value == pytest.approx(0.75)
    assert report.pass1_sampled.value == pytest.approx(0.5)


def test_greedy_as_best_temperature_costs_no_further_sampling():
    sample, calls = by_temperature({0.0: 1.0, 1.0: 0.5})
    settings = EvalSettings(temperatures=(0.0, 1.0), resamples=50)
    report = model_report(collect("base", PROBLEMS, PROBLEMS[:3], sample, settings), settings)
    assert (6, 8, 0.0) not in calls
    assert report.best_temperature.temperature == 0.0
    assert report.best_temperature.majority["8"].value == 1.0
    assert report.pass1_best_temperature == report.pass1_greedy


def test_lowest_temperature_wins_a_tie():
    tied = {t: Figure(value=0.5, ci95=(0.4, 0.6)) for t in (0.8, 0.2, 0.6)}
    assert choose_temperature(tied) == 0.2
    assert choose_temperature({0.0: Figure.absent("none"), 0.2: Figure(value=0.0, ci95=(0.0, 0.0))}) == 0.2


def test_difference_is_policy_minus_base():
    base, policy, diff = compare(model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75), SETTINGS)
    assert (base.pass1_sampled.value, policy.pass1_sampled.value) == (0.25, 0.75)
    assert diff.pass1_sampled.value == pytest.approx(0.5)
    assert diff.majority8.value == 1.0
    assert diff.pass8.value == 0.0
    assert diff.clean_paths.value == pytest.approx(0.5)
    assert diff.right_steps.value == pytest.approx(0.25)
    assert diff.mean_steps.value == 0.0
    assert diff.by_topic["equation"].value == pytest.approx(0.5)
    assert diff.by_level["11"].value == pytest.approx(0.5)


def test_differences_need_the_same_problems():
    with pytest.raises(ValueError, match="different problems"):
        difference(model("base", PROBLEMS, 0.5), model("policy", PROBLEMS[::-1], 0.5), SETTINGS)


def test_same_seed_same_numbers():
    first, again = (compare(model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75), SETTINGS) for _ in range(2))
    assert first == again


def test_collect_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="0 test"):
        collect("base", [], PROBLEMS, lambda *_: [], SETTINGS)
    with pytest.raises(ValueError, match="sample: asked for 1"):
        collect("base", PROBLEMS, PROBLEMS, lambda *_: [], SETTINGS)
    sample, _ = by_temperature(dict.fromkeys(SETTINGS.temperatures, 0.5))
    with pytest.raises(ValueError, match="score: asked for 6"):
        collect("base", PROBLEMS, PROBLEMS, sample, SETTINGS, score=lambda problems, paths: [])
    with pytest.raises(ValueError, match="median"):
        EvalSettings(aggregate="median")
