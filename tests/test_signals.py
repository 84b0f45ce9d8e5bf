"""The signals reward: hand values, hostile text, and attacks that must not pay."""

import dataclasses
import math
import random
import time

import pytest
import torch

from common.config import load_config
from common.errors import InputError
from common.records import FinishReason, Problem, Verdict
from common.signal_settings import SIGNALS, SignalSettings
from data_gen.steps import path_from_text
from data_gen.synthetic import completion, generate, solve
from policy.advantages import MovingAverage, compute_advantages
from policy.options import PolicySettings
from policy.rewards import OutcomeReward, PenaltyWeights, outcome_rewards
from policy.rollouts import Rollout
from policy.signal_batch import signal_inputs, signal_pairs, signal_sums
from policy.signals import (
    Signals,
    StepNumbers,
    answer_format,
    consistency,
    correctness,
    depth,
    grounding,
    group_signals,
    length_in_range,
    parsable,
    step_numbers,
)
from prm.attacks import FAMILIES, attacked, honest_path

DEFAULT = SignalSettings()
PENS = Problem.create("Tom has 3 boxes of 4 pens and gets 5 more.", "17", source="test", topic="word", level=2)
RIGHT = "3*4=12\n12+5=17\nAnswer: 17"


def path_of(problem, text, reason=FinishReason.STOP, tokens=40):
    return dataclasses.replace(path_from_text(problem, text, 0), token_ids=(5,) * tokens, finish_reason=reason)


def signals_of(problem, *texts, max_tokens=100, min_steps=0, **changes):
    """Signals of each text in a group of its own, so that none decides what is usual for another."""
    found = []
    for text in texts:
        path = path_of(problem, text, **changes)
        rewards = outcome_rewards([path], weights=PenaltyWeights(), level=problem.level)
        if len(path.steps) < min_steps:
            rewards = [OutcomeReward(0.0, 0.0, True)]
        found += group_signals(problem, [path], rewards, DEFAULT, max_tokens)
    return found[0] if len(found) == 1 else found


def values(signals):
    return [getattr(signals, name) for name in SIGNALS]


# ---- weights ----


def test_default_weights_are_those_of_the_configuration():
    settings = load_config("configs/tiny.yaml").ppo.signal_settings
    assert settings == DEFAULT
    assert [getattr(settings, name) for name in SIGNALS] == [0.5, 0.1, 0.1, 0.1, 0.08, 0.07, 0.03, 0.02]
    assert (settings.least_right, settings.most_wrong) == (pytest.approx(0.57), pytest.approx(0.55))


def test_reward_is_the_weighted_sum():
    signals = Signals(*(k / 10 for k in range(1, 9)))
    by_hand = 0.05 + 0.02 + 0.03 + 0.04 + 0.04 + 0.042 + 0.021 + 0.016
    assert signals.reward(DEFAULT) == pytest.approx(by_hand)
    assert signals.around_the_answer(DEFAULT) == pytest.approx(by_hand - 0.05 - 0.042)
    assert Signals(*[1.0] * 8).reward(DEFAULT) == pytest.approx(1)
    assert Signals().reward(DEFAULT) == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ppo.signal_depth=0.2", "the weights of the eight signals must sum to 1, got 1.1"),
        ("ppo.signal_depth=0.05", "the weights of the eight signals must sum to 1, got 0.95"),
        ("ppo.signal_near=0.14", "a wrong answer could earn 0.57 and a right one only 0.57"),
        ("ppo.signal_short=0.95", "short 0.95 must not be above long 0.9"),
        ("ppo.signal_depth=-1", "greater than or equal to 0"),
        ("ppo.reward=outcome", "'process' or 'signals'"),
        ("ppo.signal_deepth=0.1", "the closest known key is 'ppo.signal_depth'"),
    ],
)
def test_weights_that_do_not_hold_are_refused(override, message):
    with pytest.raises(InputError, match=message):
        load_config("configs/tiny.yaml", [override])


def test_weights_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match=r"signal setting near must be in \[0, 1\], got nan"):
        SignalSettings(near=math.nan)


def test_signals_and_a_critic_of_steps_exclude_each_other():
    with pytest.raises(ValueError, match="signals with baseline = 'gae' is not served; wanted another one"):
        PolicySettings(signals=DEFAULT, baseline="gae")


# ---- each signal by hand ----


def test_a_sound_path_earns_everything():
    assert values(signals_of(PENS, RIGHT)) == [1.0] * 8


def test_a_false_last_step_by_hand():
    """12 + 5 = 18: refuted, so not consistent; its 3 numbers of 6 are not grounded, 1 step of 2 derives; 1/17 off."""
    found = signals_of(PENS, "3*4=12\n12+5=18\nAnswer: 18")
    assert found.correctness == pytest.approx(0.1 * math.exp(-10 / 17))
    assert (found.consistency, found.depth, found.grounding) == (0, 0.5, 0.5)
    assert (found.format, found.parsable, found.length, found.repetition) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("answer", "gold", "wanted"),
    [
        ("18", "17", 0.1 * math.exp(-10 / 17)),
        ("16", "17", 0.1 * math.exp(-10 / 17)),
        ("1/2", "0.75", 0.1 * math.exp(-2.5)),  # below 1 the error is absolute
        ("1", "0", 0.1 * math.exp(-10)),
        ("#### 90", "#### 100", 0.0),  # no answer is written so
        ("90", "so 50+50\n#### 100", 0.1 * math.exp(-1)),
        ("17%", "17", 0.1),  # the value, and yet wrong
        ("-17", "17", 0.1 * math.exp(-20)),
        ("1e300", "17", 0.0),
        ("9^9^9^9", "17", 0.0),
        ("1/0", "17", 0.0),
        ("nan", "17", 0.0),
        ("NaN", "nan", 0.0),
        ("\\infty", "17", 0.0),
        ("inf", "17", 0.0),
        ("x+1", "x+2", 0.0),
        ("\\sqrt{2}", "1.5", 0.0),
        ("", "17", 0.0),
        (None, "17", 0.0),
        ("18", "", 0.0),
    ],
)
def test_correctness_of_wrong_answers(answer, gold, wanted):
    assert correctness(answer, False, gold, 0.1) == pytest.approx(wanted, abs=1e-12)
    assert correctness(answer, False, gold, 0.0) == 0


def test_a_right_answer_is_right_whatever_it_looks_like():
    assert correctness("x+x", True, "2x", 0.1) == 1
    assert parsable("x+x", True, "2x") == 1
    assert signals_of(PENS, "Answer: ١٧").correctness == 1  # Arabic digits, which the grader reads


@pytest.mark.parametrize(
    ("answer", "gold", "wanted"),
    [("18", "17", 1), ("nan", "17", 0), ("many", "17", 0), ("12, 17", "17", 0), ("x+1", "x+2", 1), (None, "x", 0)],
)
def test_parsable(answer, gold, wanted):
    assert parsable(answer, False, gold) == wanted


@pytest.mark.parametrize(
    ("answer", "steps", "wanted"),
    [
        ("17", ["3*4=12", "12+5=17"], 1),
        ("12", ["3*4=12", "12+5=17"], 0),
        ("5", ["12+5=17"], 0),
        ("17", ["12+5=17", "That is for 3 boxes"], 1),  # the last step that computes
        ("12", ["36=3*12+0"], 1 / 3),  # a division line: quotient, divisor and remainder
        ("7", ["x=1 2 3 4 5 6 7 8 9 10"], 1 / 10),  # listing pays little
        ("17", ["So he has 12 and 5, together 17 pens"], 1),
        ("12", ["So he has 12 and 5, together 17 pens"], 0),
        ("18", ["12+5=18"], 0),  # refuted
        ("-5", ["3-8=-5"], 1),
        ("5", ["3-8=-5"], 0),
        ("0.5", ["2/4=1/2"], 1),
        ("x = 7", ["x=7"], 1),
        ("\\sqrt{2}", ["x=\\sqrt{2}"], 1),
        ("17", [], 0),
        ("17", ["no number"], 0),
        (None, ["12+5=17"], 0),
    ],
)
def test_consistency(answer, steps, wanted):
    assert consistency(answer, steps) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (["3*4=12", "12+5=17"], [(3, 3, True), (3, 3, True)]),
        (["3*4=12", "3*4=12"], [(3, 3, True), (3, 3, False)]),  # a copy derives nothing
        (["3*4=12", " 3 * 4 = 12"], [(3, 3, True), (3, 3, False)]),
        (["99"], [(1, 0, False)]),  # from nowhere
        (["99", "99+1=100"], [(1, 0, False), (3, 0, True)]),  # true, about nothing
        (["3*4=13", "13+5=18"], [(3, 0, False), (3, 1, True)]),  # what a false equation says is not known later
        (["13+5=18"], [(3, 1, True)]),
        (["3+4+5=12"], [(4, 4, True)]),  # the left side is known, and the equation holds
        (["30=29+1"], [(3, 1, True)]),  # neither side is; 1 = 4 - 3
        (["Then 12 pens"], [(1, 1, True)]),  # 3*4
        (["Then 12 pens", "and 5 make 17"], [(1, 1, True), (2, 2, True)]),
        (["3=3"], [(1, 1, False)]),
        (["the pens"], [(0, 0, False)]),
        (["1. 3*4=12"], [(3, 3, True)]),  # a list head is no number
        (["3^2=9"], [(3, 3, True)]),
        (["3^2=10"], [(3, 0, False)]),
        (["3^200=97"], [(3, 1, False)]),  # too costly to look at
    ],
)
def test_step_numbers(steps, wanted):
    assert [dataclasses.astuple(one) for one in step_numbers(PENS.text, steps)] == wanted


def test_step_numbers_of_a_division():
    """84 and 36 are given; each line has a known left side, so quotient and remainder are grounded."""
    found = step_numbers("Find the gcd of 84 and 36.", ["84=2*36+12", "36=3*12+0", "36=2*12+12"])
    assert [dataclasses.astuple(one) for one in found] == [(4, 4, True), (4, 4, True), (3, 3, True)]


def test_numbers_beyond_the_limit_count_as_not_grounded():
    problem = " ".join(map(str, range(100)))
    (found,) = step_numbers(problem, [problem])
    assert (found.total, found.grounded) == (100, 24)


def test_depth_and_grounding_by_hand():
    numbers = [StepNumbers(3, 3, True), StepNumbers(2, 0, False), StepNumbers(3, 1, True)]
    assert grounding(numbers) == pytest.approx(4 / 8)
    assert grounding([StepNumbers(0, 0, False)]) == 0
    assert depth(numbers, 4) == pytest.approx(2 / 4)
    assert depth(numbers, None) == pytest.approx(2 / 5)
    assert depth(numbers, 100) == pytest.approx(2 / 5)
    assert depth(numbers, 1) == 1  # more than usual earns nothing
    assert depth(numbers, 0) == 1
    assert depth([], 2) == 0


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (RIGHT, 1),
        ("3*4=12\nSo it is $\\boxed{17}$.", 1),
        ("3*4=12\n#### 17\n", 1),
        ("Answer: 17\nI hope it is.", 0.5),
        ("\\boxed{17} as everyone knows", 0.5),
        ("Answer: 12\nAnswer: 17", 0.5),
        ("\\boxed{12}\nAnswer: 13\nso \\boxed{17} or so", 0),
        ("3*4=12\n12+5=17", 0),  # an answer that is not announced
        ("He has 17 pens.", 0),
        ("", 0),
    ],
)
def test_answer_format(text, wanted):
    assert answer_format(text) == wanted


def test_length_in_range():
    def at(tokens, short=0.1, long=0.8):
        return length_in_range(tokens, 100, short, long)

    assert [at(0), at(5), at(10), at(80), at(90), at(100), at(150)] == pytest.approx([0, 0.5, 1, 1, 0.5, 0, 0])
    assert at(100, long=1.0) == 1
    assert at(101, long=1.0) == 0
    assert at(0, short=0.0) == 1


def test_repetition():
    assert signals_of(PENS, "3*4=12\n" * 4 + "Answer: 12").repetition == pytest.approx(
        1 / 4
    )  # copies: 3 of 4; 4-grams: 0.6
    assert signals_of(PENS, "1\n1\n1\n1\nAnswer: 12").repetition == pytest.approx(1 - 3 / 4)  # three copies of a step
    assert signals_of(PENS, RIGHT).repetition == 1


# ---- paths that have no answer ----


def test_a_truncated_path_has_no_answer():
    cut = signals_of(PENS, RIGHT, reason=FinishReason.LENGTH, tokens=100)
    assert (cut.correctness, cut.consistency, cut.format, cut.parsable, cut.length) == (0, 0, 0, 0, 0)
    assert (cut.depth, cut.grounding) == (1, 1)


def test_a_right_answer_without_the_steps_that_are_asked_for_has_no_answer():
    bare = signals_of(PENS, "Answer: 17", min_steps=1)
    assert values(bare)[:6] == [0] * 6
    assert signals_of(PENS, "Answer: 17").correctness == 1


def test_paths_that_do_not_count_have_no_signals():
    paths = [path_of(PENS, RIGHT), dataclasses.replace(path_of(PENS, RIGHT), verdict=Verdict.TIMEOUT)]
    found = group_signals(PENS, paths, outcome_rewards(paths, weights=PenaltyWeights()), DEFAULT, 100)
    assert found[0] is not None
    assert found[1] is None


# ---- hostile text ----

HOSTILE = {
    "empty": "",
    "space": " \t\n " * 25_000,
    "spaces then a letter": " " * 100_000 + "x",
    "digits": "7" * 100_000,
    "one sum": "+".join(map(str, range(20_000))),
    "many steps": "1=1\n" * 25_000,
    "many sums": "\n".join(f"{i}+{i}={2 * i}" for i in range(7_000)),
    "huge sums": "\n".join("+".join(str(10**28 + 7 * i * j) for j in range(60)) + "=7" for i in range(55)),
    "equals": "=" * 100_000,
    "brackets": "(" * 100_000,
    "boxes": "\\boxed{" * 14_000,
    "fractions": "\\frac{1}{2}" * 9_000,
    "dollars": "$1=1$ " * 16_000,
    "answers": "Answer: 18\n" * 9_000,
    "not a number": "nan=inf\n" * 12_000 + "Answer: nan",
    "infinity": "1/0=inf\n" * 12_000 + "Answer: -Infinity",
    "towers": "9^9^9^9=9\n" * 9_000 + "Answer: 9^9^9^9",
    "powers": "\n".join(f"{k}^60000/7^60001={k}" for k in range(2, 300)) + "\nAnswer: 18",
    "small powers": "\n".join(f"((({k}^9)^9)^9)/7=3" for k in range(2, 300)) + "\nAnswer: 18",
    "factorials": "5000!=1\n" * 9_000 + "Answer: 5000!",
    "exponents": "1e400+1=1e400\n" * 7_000 + "Answer: 1e99999999",
    "Arabic digits": "٣+٤=٨\n" * 15_000 + "Answer: ٨",
    "superscripts": "x²=³\n" * 20_000 + "Answer: ²",
    "full width": "３＋４＝８\n" * 15_000 + "Answer: ８",
    "emoji": "😀" * 100_000,
    "control": "\x00\x0b\u2028\ufeff" * 25_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_bounded_in_value_and_time(name):
    path = path_of(PENS, HOSTILE[name])
    is_right = path.verdict is Verdict.CORRECT
    rewards = outcome_rewards([path], weights=PenaltyWeights())
    started = time.process_time()
    (found,) = group_signals(PENS, [path], rewards, DEFAULT, 100)
    assert time.process_time() - started < 3  # measured: 0.15 s at most
    if found is not None:
        assert all(0 <= value <= 1 for value in values(found))
        assert not is_right
        assert found.reward(DEFAULT) <= DEFAULT.most_wrong
    if name in ("empty", "space", "spaces then a letter", "emoji", "brackets", "control"):
        assert found.reward(DEFAULT) <= 0.05


# ---- attacks: nothing written around a wrong answer pays ----


def falsified(problem, rng):
    """Texts with a wrong answer that go after every other signal, as (what is done, text)."""
    solution = solve(problem.text)
    steps, gold = list(solution.steps), solution.answer
    wrong = str(int(gold) + rng.choice([-1, 1])) if gold.lstrip("-").isdigit() else "1/97"
    numbers = [word.strip(".,?") for word in problem.text.split() if word.strip(".,?").isdigit()] or ["1", "2"]
    yield "sound steps, other answer", "\n".join([*steps, f"Answer: {wrong}"])
    yield "sound steps, other answer restated", "\n".join([*steps, f"So it is {wrong}", f"Answer: {wrong}"])
    yield "sound steps, the other answer derived", "\n".join([*steps, f"{wrong}+0={wrong}", f"Answer: {wrong}"])
    yield "boxed", "\n".join([*steps, f"{wrong}*1={wrong}", f"$\\boxed{{{wrong}}}$"])
    yield "gold beside it", "\n".join([*steps, f"Answer: {wrong} or {gold}"])
    yield "gold announced first", "\n".join([*steps, f"Answer: {gold}", f"Answer: {wrong}"])
    yield "percent", "\n".join([*steps, f"Answer: {gold}%"])
    yield "next to it", "\n".join([*steps, f"Answer: {gold}.0000001"])
    yield "numbers of the problem", "\n".join([*(f"{a}+{b}" for a in numbers for b in numbers), f"Answer: {wrong}"])
    yield "chain of true sums", "\n".join([*(f"{k}+{k + 1}={2 * k + 1}" for k in range(9)), f"Answer: {wrong}"])
    yield "nothing else", f"Answer: {wrong}"
    fragments = [*steps, *(f"{n}*1={n}" for n in numbers), f"{wrong}={wrong}", f"0+{wrong}={wrong}", "So it follows."]
    for _ in range(10):
        body = rng.sample(fragments, rng.randint(1, len(fragments)))
        yield "drawn", "\n".join([*body, f"0+{wrong}={wrong}", f"Answer: {wrong}"])


def test_no_wrong_answer_beats_an_honest_short_right_one():
    rng, seen, highest = random.Random(0), 0, 0.0
    for problem in generate("train", 3, 40, range(2, 9)):
        least = signals_of(problem, f"Answer: {problem.answer}", max_tokens=180).reward(DEFAULT)
        solution = solve(problem.text)
        last_step = f"{solution.steps[-1]}\nAnswer: {problem.answer}"
        least = min(least, signals_of(problem, last_step, max_tokens=180).reward(DEFAULT))
        for name, text in falsified(problem, rng):
            path = path_of(problem, text)
            if path.verdict is Verdict.CORRECT or not path.verdict.is_judged:
                continue
            found = signals_of(problem, text, max_tokens=180).reward(DEFAULT)
            seen, highest = seen + 1, max(highest, found)
            assert found < least, (name, problem.text, text)
    assert seen > 600
    assert highest > 0.5  # the attacks do reach the other signals: what holds them back is the right answer's weight


def test_attacked_paths_with_a_wrong_answer_earn_less_than_the_honest_one():
    problems = generate("train", 4, 20, range(2, 9))
    wrong = 0
    for problem in problems:
        honest = completion(solve(problem.text))
        earned = signals_of(problem, honest, max_tokens=180).reward(DEFAULT)
        for family in FAMILIES:
            attack = attacked(honest_path(problem.text, path_from_text(problem, honest, 0)), family, 0)
            path = path_of(problem, attack.text) if attack else None
            if path is not None and path.verdict in (Verdict.WRONG, Verdict.UNPARSED):
                wrong += 1
                assert signals_of(problem, attack.text, max_tokens=180).reward(DEFAULT) < earned - 0.4, family
    assert wrong > 20


@pytest.mark.parametrize("seed", range(20))
def test_every_right_path_is_above_every_wrong_one_whatever_the_signals_are(seed):
    """Any weights that are accepted, any values of the other signals."""
    rng = random.Random(seed)
    others = [rng.random() for _ in SIGNALS[1:]]
    weight = rng.uniform(0.5, 0.9)
    scale = (1 - weight) / sum(others)
    weights, near = [weight, *(scale * value for value in others)], rng.uniform(0, 0.3)
    if weight + weights[SIGNALS.index("parsable")] <= near * weight + 1 - weight:
        with pytest.raises(ValueError, match="a wrong answer could earn"):
            SignalSettings(*weights, near=near)
        return
    settings = SignalSettings(*weights, near=near)
    draw = {name: rng.random() for name in SIGNALS}
    right = Signals(**draw | {"correctness": 1.0, "parsable": 1.0})
    wrong = Signals(**dict.fromkeys(SIGNALS, 1.0) | {"correctness": settings.near})
    assert right.reward(settings) > wrong.reward(settings)


# ---- a generation batch ----


def rollout_of(*texts, is_anchor=(False, False, False, False)):
    paths = [path_of(PENS, text, tokens=3 + k) for k, text in enumerate(texts)]
    rewards = outcome_rewards(paths, weights=PenaltyWeights(), level=2)
    return Rollout(
        problems=[PENS] * len(paths),
        paths=paths,
        rewards=rewards,
        is_anchor=list(is_anchor)[: len(paths)],
        prompt_ids=[[1]] * len(paths),
        completion_ids=[list(path.token_ids) for path in paths],
        is_empty=[False] * len(paths),
        num_paths=len(paths),
        signals=group_signals(PENS, paths, rewards, DEFAULT, 100),
    )


BATCH = (RIGHT, "Answer: 17", "3*4=12\n12+5=18\nAnswer: 18", "hm")


def advantages_of(rollout, is_outcome_only=False, mix=(1.0, 0.0)):
    return compute_advantages(
        signal_inputs(rollout, DEFAULT, 8, is_outcome_only),
        process_weight=mix[0],
        outcome_weight=mix[1],
        baseline="group",
        normalise_sources=False,
        moving_average=MovingAverage.create(),
    ).advantages_BT


def test_the_whole_path_gets_its_reward_minus_the_baseline():
    rollout = rollout_of(*BATCH)
    earned = [signals.reward(DEFAULT) for signals in rollout.signals]
    assert earned[0] > earned[1] > earned[2] > earned[3] > 0
    found = advantages_of(rollout)
    for row, value in enumerate(earned):
        wanted = [value - sum(earned) / 4] * (3 + row) + [0.0] * (5 - row)
        assert found[row].tolist() == pytest.approx(wanted, abs=1e-6)


def test_an_anchor_learns_from_the_outcome_alone():
    rollout = rollout_of(*BATCH, is_anchor=[True] * 4)
    assert advantages_of(rollout)[:, 0].tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])
    switched_off = advantages_of(rollout_of(*BATCH), is_outcome_only=True)
    assert switched_off[:, 0].tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])


def test_what_an_alarm_takes_from_the_signals_goes_to_the_outcome():
    settings = PolicySettings(signals=DEFAULT)
    assert settings.mix(1.0) == (1.0, 0.0)
    assert settings.mix(0.25) == (0.25, 0.75)
    assert PolicySettings().mix(0.5) == (0.35, 0.3)
    rollout = rollout_of(*BATCH)
    earned = [signals.reward(DEFAULT) for signals in rollout.signals]
    half = 0.5 * (earned[0] - sum(earned) / 4) + 0.5 * 0.5
    assert advantages_of(rollout, mix=settings.mix(0.5))[0, 0].item() == pytest.approx(half)


def test_a_path_that_does_not_count_has_no_advantage_and_moves_no_baseline():
    rollout = rollout_of(*BATCH)
    paths = [*rollout.paths[:3], dataclasses.replace(rollout.paths[3], verdict=Verdict.TIMEOUT)]
    rewards = outcome_rewards(paths, weights=PenaltyWeights(), level=2)
    signals = group_signals(PENS, paths, rewards, DEFAULT, 100)
    part = dataclasses.replace(rollout, paths=paths, rewards=rewards, signals=signals)
    found = advantages_of(part)
    assert torch.equal(found[3], torch.zeros(8))
    earned = [one.reward(DEFAULT) for one in signals[:3]]
    assert found[0, 0].item() == pytest.approx(earned[0] - sum(earned) / 3)
    assert signal_sums(part, DEFAULT)["signals/total"] == pytest.approx(sum(earned))
    assert len(signal_pairs(part, DEFAULT)) == 3


def test_sums_and_pairs_by_hand():
    rollout = rollout_of(*BATCH[:3])
    sums = signal_sums(rollout, DEFAULT)
    assert set(sums) == {f"signals/{name}" for name in (*SIGNALS, "total")}
    assert sums["signals/consistency"] == 1
    assert sums["signals/depth"] == pytest.approx(1 + 0 + 1)  # right paths of 2 and 0 steps: 1 step is usual
    assert sums["signals/parsable"] == 3
    around = [one.reward(DEFAULT) - 0.5 * one.correctness - 0.07 for one in rollout.signals]
    assert [value for value, _ in signal_pairs(rollout, DEFAULT)] == pytest.approx(around)
    assert [is_right for _, is_right in signal_pairs(rollout, DEFAULT)] == [True, True, False]
