"""The signals reward under hostile text, and attacks that must not pay."""

import random
import time

import pytest
from signal_toys import DEFAULT, PENS, path_of, signals_of, values

from common.records import Verdict
from common.signal_settings import SIGNALS, SignalSettings
from data_gen.steps import path_from_text
from data_gen.synthetic import completion, generate, solve
from policy.rewards import PenaltyWeights, outcome_rewards
from policy.signals import (
    Signals,
    group_signals,
)
from prm.attacks import FAMILIES, attacked, honest_path

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
