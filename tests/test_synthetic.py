"""The generator: gold solutions, splits, determinism, habits; the oracle on perturbed gold solutions."""

import collections
import random
import re
from fractions import Fraction

import pytest

from data_gen.synthetic import CATALOGUE, KINDS, StepJudgement, generate, judge, solve, split_of
from data_gen.synthetic.corpus import stream

RIGHT = StepJudgement(None, False, None)


def renamed(text):
    """An independent renaming: names by order of appearance, things and letters to one word, verbs to their sense."""
    for verbs, sense in (("gets|finds|buys", "GAINS"), ("loses|sells|gives away", "LOSES"), ("bags", "boxes")):
        text = re.sub(rf"\b({verbs})\b", sense, text)
    text = text.replace("splits them into", "SHARES").replace("and friends share them equally by", "SHARES")
    text = text.replace(" equal piles and keeps one", "")
    order = {}
    text = re.sub(r"\b[A-Z][a-z]{2}\b(?! many)", lambda name: order.setdefault(name[0], f"N{len(order)}"), text)
    text = re.sub(r"\b(apples|coins|books|pens|cards|shells|stamps|beads)\b", "things", text)
    return re.sub(r"(?<![a-z])[xyn](?![a-z])", "x", text)


@pytest.mark.parametrize("kind", KINDS)
def test_gold_solutions_are_right_and_have_the_level(kind):
    levels = [level for level in KINDS[kind].LEVELS if level <= 10]
    for problem in generate("validation", 3, 150, levels=levels, kinds=[kind]):
        solution = solve(problem.text)
        assert (len(solution.steps), solution.answer) == (problem.level, problem.answer)
        assert judge(problem.text, solution.steps) == RIGHT


def independent_answer(problem):
    """The answer by Python's own arithmetic, without any parser of the project."""
    text = problem.text
    if problem.topic in ("chain", "fraction"):
        body = re.sub(r"(\d+)/(\d+)", r"Fraction(\1,\2)", text[len("Compute ") : -1]).replace(":", "/")
        return Fraction(eval(body, {"Fraction": Fraction}))
    if problem.topic == "equation":
        body = text[len("Solve ") : -1]
        letter = next(c for c in body if c.isalpha())
        body = re.sub(r"(\d)(?=[a-z(])", r"\1*", body).replace(letter, "X")
        left, right = body.split("=")
        difference = [eval(left, {"X": x}) - eval(right, {"X": x}) for x in (Fraction(0), Fraction(1))]
        return difference[0] / (difference[0] - difference[1])
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    if "quotient" in text:
        return Fraction(numbers[0] // numbers[1])
    return Fraction(max(n for n in range(1, 100) if numbers[0] % n == 0 == numbers[1] % n))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "word"])
def test_gold_answers_agree_with_independent_arithmetic(kind):
    for problem in generate("train", 5, 200, levels=range(2, 9), kinds=[kind]):
        assert Fraction(problem.answer) == independent_answer(problem), problem


def test_word_answers_by_hand():
    cases = {
        "Ann has 12 pens. Ann gets 5 more. How many pens does Ann have?": "17",
        "Ann has 12 pens. Ann sells 2 boxes of 4. Ann loses 1. How many pens does Ann have?": "3",
        "Ann has 12 pens. Ann now has 4 more than Ben. Ben splits them into 2 equal piles and keeps one. "
        "How many pens does Ben have?": "4",
        "Ann has 12 pens. Ann now has 4 fewer than Ben. Tom has 3 times as many as Ben. "
        "How many pens does Tom have?": "48",
        "Ann has 12 pens. Ben has 4 fewer than Ann. Ida has 2 more than Ben. How many pens does Ida have?": "10",
    }
    for text, answer in cases.items():
        assert solve(text).answer == answer


def test_splits_are_disjoint_after_renaming_and_hold_no_duplicate():
    splits = ("train", "validation", "test")
    texts = {split: [renamed(p.text) for p in generate(split, 1, 400, levels=range(2, 6))] for split in splits}
    for split, own in texts.items():
        assert len(own) == len(set(own)), split
    assert not set(texts["train"]) & set(texts["validation"])
    assert not set(texts["train"]) & set(texts["test"])
    assert not set(texts["validation"]) & set(texts["test"])


def test_renaming_does_not_change_the_split():
    story = "{0} has 12 {2}. {1} has 4 more than {0}. {1} {3}. How many {2} does {1} have?"
    first = story.format("Ann", "Ben", "pens", "gets 5 more")
    second = story.format("Zoe", "Mia", "books", "finds 5 more")
    assert split_of("word", first) == split_of("word", second)
    letters = {split_of("equation", f"Solve 3{letter}+{k}=2{letter}+9.") for letter in "xyn" for k in (4,)}
    assert len(letters) == 1


def test_corpus_holds_train_problems_only():
    source = stream(1, {2: 1.0, 3: 1.0})
    for text, _ in (next(source) for _ in range(200)):
        kind = next(name for name, module in KINDS.items() if module.parse(text) is not None)
        assert split_of(kind, text) == "train"


def test_generation_is_deterministic_and_balanced():
    problems = generate("test", 7, 100, levels=[3, 4])
    assert problems == generate("test", 7, 100, levels=[4, 3])
    assert problems != generate("test", 8, 100, levels=[3, 4])
    assert collections.Counter((p.topic, p.level) for p in problems) == {(k, n): 10 for k in KINDS for n in (3, 4)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"split": "dev"}, "split is 'dev'"), ({"kinds": ["poem"]}, "kind is 'poem'"), ({"levels": [99]}, "no kind")],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate(**{"split": "train", "seed": 0, "count": 1} | arguments)


def test_answers_spread():
    for kind in KINDS:
        answers = collections.Counter(p.answer for p in generate("train", 2, 120, levels=range(4, 8), kinds=[kind]))
        assert max(answers.values()) <= 120 * 0.17, (kind, answers.most_common(3))


def occurring(problem, steps):
    return set(re.findall(r"\d+", " ".join([problem.text, *steps])))


def perturb(problem, steps, rng):
    """Return (steps with one that is false for sure, its index); see each branch for why it is false."""
    index = rng.randrange(len(steps))
    step = steps[index]
    numbers = list(re.finditer(r"\d+", step))
    chosen = rng.choice(numbers)
    change = rng.choice([-2, -1, 1, 2, 10])
    value = max(0, int(chosen[0]) + change)
    wrong = step[: chosen.start()] + str(value) + step[chosen.end() :]
    if wrong == step or re.search(r"[/:]0", wrong):
        return None
    if problem.topic == "equation":  # the problem's solution does not satisfy it
        letter = next((c for c in wrong if c.isalpha()), "x")
        left, right = re.sub(r"(\d)(?=[a-z(])", r"\1*", wrong).replace(letter, "X").split("=")
        x = Fraction(problem.answer)
        is_false = eval(left, {"X": x}) != eval(right, {"X": x})
    elif problem.topic == "number":  # the identity fails
        left, right = wrong.split("=")
        is_false = int(left) != eval(right)
    else:  # the two sides differ, or the equation is made true again with an operand that occurs nowhere
        exact = [
            eval(re.sub(r"(\d+)/(\d+)", r"Fraction(\1,\2)", side).replace(":", "/"), {"Fraction": Fraction})
            if problem.topic == "fraction"
            else Fraction(eval(side.replace("/", "//") if "//" not in side else side))
            for side in wrong.split("=")
        ]
        is_false = exact[0] != exact[1]
        if is_false and problem.topic == "chain" and chosen.end() < step.index("=") and rng.random() < 0.5:
            wrong = f"{wrong.split('=')[0]}={exact[0]}"
            is_false = str(value) not in occurring(problem, steps[:index])
        if problem.topic == "word" and "/" in wrong:
            left, right = wrong.split("=")
            a, b = left.split("/")
            is_false = int(b) != 0 and Fraction(int(a), int(b)) != int(right)
    return ([*steps[:index], wrong, *steps[index + 1 :]], index) if is_false else None


@pytest.mark.parametrize("kind", KINDS)
def test_oracle_finds_the_perturbed_step(kind):
    rng = random.Random(11)
    levels = [level for level in KINDS[kind].LEVELS if level <= 8]
    problems = generate("train", 13, 120, levels=levels, kinds=[kind])
    tried = found = 0
    while tried < 1000:
        problem = problems[tried % len(problems)]
        perturbed = perturb(problem, list(solve(problem.text).steps), rng)
        if perturbed is None:
            continue
        steps, index = perturbed
        tried += 1
        found += judge(problem.text, steps).first_error == index
    assert found >= 999


@pytest.mark.parametrize("kind", KINDS)
def test_swapping_two_different_steps_is_never_missed_when_the_second_needs_the_first(kind):
    problems = generate("train", 17, 60, levels=[4, 5], kinds=[kind])
    checked = 0
    for problem in problems:
        steps = list(solve(problem.text).steps)
        result = steps[0].split("=")[1]
        if (
            kind == "equation"
            or result in occurring(problem, [])
            or result not in re.findall(r"\d+", steps[1].split("=")[0])
        ):
            continue  # rewritten equations may come in any order; other steps only when nothing else gives the number
        assert judge(problem.text, [steps[1], steps[0], *steps[2:]]).first_error == 0
        checked += 1
    assert checked >= 5 or kind in ("equation", "fraction", "number")


def test_every_habit_shows_is_wrong_and_is_named():
    rng = random.Random(5)
    problems = generate("train", 19, 900, levels=range(2, 9))
    problems += generate("train", 19, 300, levels=range(2, 6), kinds=["number"])
    shown, named = collections.Counter(), collections.Counter()
    for problem in problems:
        solution = solve(problem.text, rng)
        first = next((index for index, habit in enumerate(solution.habits) if habit), None)
        judged = judge(problem.text, solution.steps)
        assert not judged.unknown
        if first is None:
            assert judged == RIGHT
            continue
        shown[solution.habits[first]] += 1
        named[solution.habits[first]] += judged.first_error == first and judged.habit == solution.habits[first]
    assert set(shown) == set(CATALOGUE)
    assert sum(named.values()) >= 0.95 * sum(shown.values()), (shown, named)


def test_some_habits_win_in_their_context():
    assert sum(habit.probability > 0.5 for habit in CATALOGUE.values()) >= 5
    always = {name: float(habit.probability > 0.5) for name, habit in CATALOGUE.items()}
    problems = generate("validation", 23, 300, levels=range(2, 7))
    rng = random.Random(1)
    greedy = sum(solve(p.text, rng, always).answer == p.answer for p in problems) / len(problems)
    sampled = sum(solve(p.text, rng).answer == p.answer for p in problems) / len(problems)
    assert 0.3 < greedy < 0.6
    assert 0.3 < sampled < 0.6


def test_impossible_work_still_ends_with_an_answer():
    rng = random.Random(2)
    habits = dict.fromkeys(CATALOGUE, 0.7)
    for problem in generate("train", 29, 400, levels=range(2, 9)):
        assert re.fullmatch(r"-?\d+(/\d+)?|none", solve(problem.text, rng, habits).answer)
