"""Quality as a part of the reward: only right paths earn by it, and how much at most."""

import itertools

import pytest
import torch
from policy_toys import toy_trainer
from signal_toys import DEFAULT, PENS, RIGHT, path_of

from common.config import load_config
from common.errors import InputError
from common.quality_settings import MEASURES, MOST_QUALITY, QualityWeights
from pipeline.rounds import round_overrides
from policy.options import PolicySettings
from policy.quality import earned, group_quality, quality_sums, usual_steps, with_quality
from policy.rewards import PenaltyWeights, outcome_rewards
from policy.rollouts import Rollout
from policy.signal_batch import signal_inputs
from policy.signals import group_signals
from prm.quality.measures import Quality

ALL = QualityWeights(*[MOST_QUALITY / 5] * 5)
LATE = "12+5=17\n3*4=12\nAnswer: 17"
WRONG = "3*4=12\n12+5=17\n17+1=18\nAnswer: 18"
BARE = "Answer: 17"


def judged(*texts, weights=ALL, judge=lambda prompts, paths: [0.5] * len(paths)):
    paths = [path_of(PENS, text) for text in texts]
    rewards = outcome_rewards(paths, weights=PenaltyWeights(), level=2)
    return with_quality([PENS], [[1]], paths, rewards, weights, judge)


def test_what_quality_earns_by_hand():
    rewards, qualities = judged(RIGHT, LATE, WRONG)
    assert qualities[0] == Quality(completeness=1, redundancy=1, coherence=0.5, clarity=1, detail=1)
    assert qualities[1].completeness == pytest.approx(5 / 6)
    assert qualities[2] is None
    assert [reward.reward for reward in rewards] == pytest.approx([1 + 0.1 * 4.5, 1 + 0.1 * (3.5 + 5 / 6), 0])
    assert quality_sums(qualities, ALL)["quality/completeness"] == pytest.approx(1 + 5 / 6)
    assert quality_sums(qualities, ALL)["quality/total"] == pytest.approx(0.45 + 0.1 * (3.5 + 5 / 6))


def test_no_weights_change_nothing():
    paths = [path_of(PENS, text) for text in (RIGHT, WRONG)]
    rewards = outcome_rewards(paths, weights=PenaltyWeights(), level=2)
    assert with_quality([PENS], [[1]], paths, rewards, QualityWeights(), None) == (rewards, [])
    assert load_config("configs/tiny.yaml").ppo.quality_weights == PolicySettings().quality == QualityWeights()
    assert quality_sums([], QualityWeights()) == {}


@pytest.mark.parametrize("name", MEASURES)
def test_no_wrong_path_gains_on_a_right_one_whatever_it_writes(name):
    """Every pair of a right and a wrong text: with a weight the right one is never less ahead than without."""
    weights = QualityWeights(**{name: MOST_QUALITY})
    wrong = [WRONG, "Answer: 18", "3*4=13\nAnswer: 13", "hm", "", "3*4=12\n12+5=17\nAnswer: 12"]
    right = [RIGHT, LATE, BARE, "12+5=17\n" * 4 + BARE, "Let us think. " * 9 + "\n" + BARE]
    for good, bad in itertools.product(right, wrong):
        plain = outcome_rewards([path_of(PENS, text) for text in (good, bad)], weights=PenaltyWeights(), level=2)
        rewards, _ = judged(good, bad, weights=weights, judge=lambda prompts, paths: [1.0] * len(paths))
        assert rewards[1].reward == plain[1].reward
        assert plain[0].reward <= rewards[0].reward <= plain[0].reward + MOST_QUALITY
        assert rewards[0].reward > rewards[1].reward


def test_only_right_paths_are_given_to_the_language_model():
    seen = []

    def judge(prompts, paths):
        seen.append(([list(prompt) for prompt in prompts], [path.answer for path in paths]))
        return [None] * len(paths)

    rewards, _ = judged(WRONG, RIGHT, weights=QualityWeights(coherence=0.1), judge=judge)
    assert seen == [([[1]], ["17"])]
    assert [reward.quality for reward in rewards] == [0, 0]  # nothing could be said


def test_usual_steps_are_those_of_the_right_paths():
    paths = [path_of(PENS, text) for text in (RIGHT, "3*4=12\n12+2=14\n14+2=16\n16+1=17\nAnswer: 17", WRONG)]
    assert usual_steps(PENS, paths, [True, True, False]) == 3
    assert usual_steps(PENS, paths, [False] * 3) == PENS.level
    found = group_quality(PENS, paths, [True, True, False], [None] * 3)
    assert [quality and quality.detail for quality in found] == pytest.approx([2 / 3, 3 / 4, None])


def test_what_cannot_be_said_earns_nothing():
    assert earned(Quality(), ALL) == earned(None, ALL) == 0
    assert earned(Quality(1, 1, 1, 1, 1), ALL) == pytest.approx(MOST_QUALITY)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["ppo.quality_clarity=0.3", "ppo.quality_detail=0.3"], "must sum to at most 0.5, got 0.6"),
        (["ppo.quality_clarity=-0.1"], "greater than or equal to 0"),
        (["ppo.quality_clarty=0.1"], "the closest known key is 'ppo.quality_clarity'"),
    ],
)
def test_weights_that_are_refused(overrides, message):
    with pytest.raises(InputError, match=message):
        load_config("configs/tiny.yaml", overrides)


def test_the_signals_reward_takes_it_too():
    paths = [path_of(PENS, text, tokens=3) for text in (RIGHT, WRONG)]
    plain = outcome_rewards(paths, weights=PenaltyWeights(), level=2)
    rewards, qualities = with_quality([PENS], [[1]], paths, plain, QualityWeights(clarity=0.2), None)
    signals = group_signals(PENS, paths, rewards, DEFAULT, 100)
    ids = [list(path.token_ids) for path in paths]
    rollout = Rollout([PENS] * 2, paths, rewards, [False] * 2, [[1]] * 2, ids, [False] * 2, 2, signals=signals)
    returns = signal_inputs(rollout, DEFAULT, 3).returns_BS[:, 0]
    assert returns[0].item() == pytest.approx(signals[0].reward(DEFAULT) + 0.2 * qualities[0].clarity)
    assert returns[1].item() == pytest.approx(signals[1].reward(DEFAULT))


def test_the_trainer_logs_and_learns_from_it(tmp_path):
    arguments = {"logging_steps": 4, "max_steps": 4}
    weights = QualityWeights(completeness=0.2, coherence=0.1)
    plain = toy_trainer(tmp_path / "plain", arguments=arguments)
    other = toy_trainer(
        tmp_path / "quality",
        arguments=arguments,
        settings=PolicySettings(quality=weights),
        judge_coherence=lambda prompts, paths: [0.25] * len(paths),
    )
    plain.train()
    other.train()
    (row,) = [row for row in other.state.log_history if "quality/total" in row]
    assert row["quality/coherence"] == pytest.approx(0.25)
    assert row["quality/total"] == pytest.approx(0.2 * row["quality/completeness"] + 0.1 * 0.25)
    assert 0 < row["quality/completeness"] <= 1
    (without,) = [row for row in plain.state.log_history if "reward/outcome" in row]
    assert row["reward/outcome"] == without["reward/outcome"]  # right answers, as ever
    assert not any(name.startswith("quality/") for name in without)
    pairs = zip(plain.model.parameters(), other.model.parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_coherence_wants_a_judge(tmp_path):
    with pytest.raises(ValueError, match="needs judge_coherence"):
        toy_trainer(tmp_path, settings=PolicySettings(quality=QualityWeights(coherence=0.1)))


def test_the_schedule_of_rounds_is_one_configuration():
    config = load_config("configs/quality-rounds.yaml")
    settings = [round_overrides(config, index, ["seed=3"]) for index in range(4)]
    loaded = [load_config("configs/quality-rounds.yaml", own).ppo for own in settings]
    assert [one.penalty_short for one in loaded] == [0, 0.3, 0.3, 0]
    assert [one.quality_clarity for one in loaded] == [0, 0, 0.2, 0]
    assert settings[1] == ["ppo.penalty_short=0.3", "seed=3"]  # the command line comes last and wins
