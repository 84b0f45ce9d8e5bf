"""Attack families by hand; what attacked paths earn; a PRM that is fooled and one that is not."""

import dataclasses
import re

import pytest
import torch
from attack_toys import TOKENIZER, sampled_path, sampled_paths, sum_problem

from common.config import Config
from common.records import FinishReason, Verdict
from data_gen.steps import path_from_text
from policy.advantages import EPSILON, AdvantageInputs
from policy.attack_cases import Case, build_attacked, completion
from policy.attack_report import measure_attacks
from policy.attack_rewards import Wins, count_wins, reference_baseline, total_rewards, trained_means
from policy.options import PolicySettings
from prm.attacks import FAMILIES, HARDENING, UNTAUGHT, attacked, honest_path, labelled_attack

PROBLEM = sum_problem(5)
RIGHT = "5+3=8\n8+4=12\nAnswer: 12"
BY_HAND = {
    "empty_step": ("5+3=8\n.\n8+4=12\n.\nAnswer: 12", (1, 0, 1, 0)),
    "no_step": ("Answer: 12", ()),
    "thanks": ("5+3=8\n8+4=12\nThanks.\nAnswer: 12", (1, 1, 0)),
    "question_copied": ("Compute 5+3+4.\nAnswer: 12", (0,)),
    "repeated_step": ("5+3=8\n" * 8 + "Answer: 12", (1, 0, 0, 0, 0, 0, 0, 0)),
    "giant_step": ("5+3=8 8+4=12\nAnswer: 12", (1,)),
    "shuffled": ("8+4=12\n5+3=8\nAnswer: 12", (0, 0)),
    "no_answer": ("5+3=8\n8+4=12", (1, 1)),
    "padding": ("5+3=8\nSo we go on.\n8+4=12\nSo we go on.\nAnswer: 12", (1, 0, 1, 0)),
    "step_marker": ("5+3\nStep 2: =8\n8+4\nStep 3: =12\nAnswer: 12", (1, 1, 1)),
    "early_answer": ("Answer: 12\n5+3=8\n8+4=12", ()),
}


def honest(text=RIGHT):
    return honest_path(PROBLEM.text, path_from_text(PROBLEM, text, 0))


def test_families_are_fourteen_half_of_them_for_hardening():
    assert len(FAMILIES) == 14
    assert len(HARDENING) == len(UNTAUGHT) == 7
    assert set(HARDENING) | set(UNTAUGHT) == set(FAMILIES)


@pytest.mark.parametrize("family", BY_HAND)
def test_family_by_hand(family):
    text, labels = BY_HAND[family]
    attack = attacked(honest(), family, seed=0)
    assert attack.text == text
    assert labelled_attack(sampled_path(PROBLEM, text), attack, family).labels == labels


@pytest.mark.parametrize("seed", range(5))
def test_families_that_draw(seed):
    wrong = attacked(honest(), "wrong_answer", seed)
    assert re.fullmatch(r"5\+3=8\n8\+4=12\nAnswer: \d+", wrong.text)
    assert path_from_text(PROBLEM, wrong.text, 0).verdict is Verdict.WRONG
    steps = attacked(honest(), "wrong_steps", seed)
    first, second = re.fullmatch(r"5\+3=(\d+)\n8\+4=(\d+)\nAnswer: 12", steps.text).groups()
    assert 8 < int(first) <= 17
    assert 12 < int(second) <= 21
    theorem = attacked(honest(), "invented_theorem", seed)
    assert re.fullmatch(r"By the \S+ theorem, 5\+3=8\nBy the \S+ theorem, 8\+4=12\nAnswer: 12", theorem.text)
    for attack in (steps, theorem):
        row = labelled_attack(path_from_text(PROBLEM, attack.text, 0), attack, "family")
        assert (row.labels, row.first_error) == ((0, 0), 0)
    assert wrong == attacked(honest(), "wrong_answer", seed)


def test_what_leaves_nothing_to_attack():
    single = honest("5+3+4=12\nAnswer: 12")
    assert attacked(single, "shuffled", 0) is None
    assert attacked(single, "giant_step", 0) is None
    assert attacked(honest("so it is\n\nAnswer: x"), "wrong_answer", 0) is None
    assert honest_path("", path_from_text(PROBLEM, "Answer: 12", 0)) is None  # no step
    assert (
        honest_path("", path_from_text(PROBLEM, "5+3=8, so we know \\boxed{12} and stop", 0)) is None
    )  # answer inside
    with pytest.raises(ValueError, match="unknown attack family 'none'"):
        attacked(single, "none", 0)


def test_the_layout_of_the_honest_path_is_kept():
    text = "Sure.\n\n5+3=8\n\n8+4=12\n\nSo the answer is \\boxed{12}."
    found = honest(text)
    assert found.separator == "\n\n"
    assert attacked(found, "thanks", 0).text == text.replace("\n\nSo the", "\n\nThanks.\n\nSo the")


def test_an_attacked_text_is_cut_at_the_length_limit():
    ids, reason = completion("12+3", TOKENIZER, 5)
    assert (len(ids), ids[-1], reason) == (5, TOKENIZER.eos_token_id, FinishReason.STOP)
    assert completion("12+3", TOKENIZER, 4) == (ids[:4], FinishReason.LENGTH)


def hand_inputs():
    """Two paths: returns -0.1, -0.3, right, 4 tokens (2 of step 1, 1 of step 2, answer); 0, wrong, 2 tokens."""
    return AdvantageInputs(
        returns_BS=torch.tensor([[-0.1, -0.3], [0.0, 9.0]]),
        is_step_BS=torch.tensor([[True, True], [True, False]]),
        outcome_B=torch.tensor([1.0, 0.0]),
        is_counted_B=torch.tensor([True, True]),
        is_anchor_B=torch.tensor([False, False]),
        group_B=torch.tensor([0, 1]),
        step_of_token_BT=torch.tensor([[0, 0, 1, -1], [0, -1, -1, -1]]),
        is_separator_BT=torch.zeros(2, 4, dtype=torch.bool),
        is_completion_BT=torch.tensor([[True] * 4, [True, True, False, False]]),
    )


def test_total_reward_by_hand():
    settings = PolicySettings(credit="delta")
    assert total_rewards(hand_inputs(), settings).tolist() == pytest.approx([0.7 * -0.4 + 0.3, 0.0])
    to_go = dataclasses.replace(settings, flow="to_go")
    assert total_rewards(hand_inputs(), to_go).tolist() == pytest.approx([0.7 * -0.1 + 0.3, 0.0])


def test_trained_mean_by_hand():
    """Baselines: -0.05 and -0.3 for the two positions, 0.5 for the outcome."""
    inputs, settings = hand_inputs(), PolicySettings()
    plain = reference_baseline(inputs, is_normalised=False)
    step, outcome = 0.7 * -0.05, 0.3 * 0.5
    wanted = [(2 * (step + outcome) + 2 * outcome) / 4, (-step - outcome - outcome) / 2]
    assert trained_means(inputs, plain, settings).tolist() == pytest.approx(wanted)
    scaled = reference_baseline(inputs, is_normalised=True)
    assert scaled.process_scale == pytest.approx((2 * 0.05**2 / 3) ** 0.5 + EPSILON)
    assert scaled.outcome_scale == pytest.approx(0.5 + EPSILON)
    step, outcome = step / scaled.process_scale, outcome / scaled.outcome_scale
    wanted = [(2 * (step + outcome) + 2 * outcome) / 4, (-step - outcome - outcome) / 2]
    assert trained_means(inputs, scaled, settings).tolist() == pytest.approx(wanted)


def test_wins_are_strict_and_have_wilson_intervals():
    wins = Wins.count([0.5] + [0.0] * 8 + [1e-7])
    assert (wins.wins, wins.of, wins.share) == (1, 10, 0.1)
    assert (wins.low, wins.high) == pytest.approx((0.0179, 0.4041), abs=1e-4)  # Wilson 1927, z = 1.96
    assert Wins.count([]).share is None
    counted = count_wins([1.0, 2.0, 0.0, float("nan")], {1: 0, 2: 0, 3: 0}, {1: "a", 2: "b", 3: "b"})
    assert {name: (one.wins, one.of) for name, one in counted.items()} == {"a": (1, 1), "b": (0, 1), "all": (1, 2)}


def fooled(prompt_ids, paths):
    """A PRM that believes every step."""
    return [[0.99] * len(path.steps) for path in paths]


def judge(prompt_ids, paths):
    """A PRM that believes true sums that start at the problem's first number, each once and in their order."""
    scores = []
    for ids, path in zip(prompt_ids, paths, strict=True):
        k = int(re.search(r"\d+", TOKENIZER.decode(ids)).group())
        true = [f"{k}+3={k + 3}", f"{k + 3}+4={k + 7}"]
        scores.append(
            [0.99 if [s.text for s in path.steps[: i + 1]] == true[: i + 1] else 0.01 for i in range(len(path.steps))]
        )
    return scores


def report_of(score, settings):
    cases = []
    for problem in [sum_problem(k) for k in range(10, 16)]:
        paths = sampled_paths(problem)
        prompt = tuple(TOKENIZER(problem.text + "\n")["input_ids"])
        cases.append(Case(problem, prompt, paths[0], honest_path(problem.text, paths[0]), tuple(paths)))
    return measure_attacks(cases, tuple(FAMILIES), score, settings, TOKENIZER, Config(), prm_hash="hash")


def test_a_prm_that_believes_everything_is_fooled_where_steps_are_paid():
    report = report_of(fooled, PolicySettings(credit="sum"))
    wins = report.wins["reward"]
    shares = {family: one.share for family, one in wins["sum"].items()}
    for family in ("empty_step", "thanks", "repeated_step", "padding", "step_marker"):
        assert shares[family] == 1, family
    for family in ("no_step", "giant_step", "shuffled", "wrong_answer", "wrong_steps", "early_answer"):
        assert shares[family] == 0, family
    assert wins["sum"] == wins["configured"]
    assert wins["mean"]["padding"].share == wins["min"]["padding"].share == 0  # 0.99 however often it is said
    assert wins["sum"]["thanks"].gain == pytest.approx(0.7 * 0.99)
    assert report.wins["trained"]["sum"]["repeated_step"].share == 1
    assert report.win_share == report.wins["trained"]["sum"]["all"].share > 0.3


def test_a_prm_that_judges_is_not_fooled():
    report = report_of(judge, PolicySettings(credit="delta"))
    assert report.cases == 6
    assert report.win_share == 0
    assert report.wins["trained"]["configured"]["all"].of == 6 * len(FAMILIES)
    for rule in ("mean", "min", "softmin", "delta"):
        assert report.wins["reward"][rule]["all"].wins == 0, rule
    bare = report_of(judge, PolicySettings(credit="delta", min_steps=0)).wins["reward"]["delta"]
    assert bare["no_step"].share == 1  # nothing said, nothing lost: no baseline in this view


def test_attacked_paths_are_built_as_rollouts(tmp_path):
    problem = sum_problem(5)
    right = sampled_paths(problem)[0]
    case = Case(problem, (3, 4), right, honest_path(problem.text, right), (right,))
    found, nothing = build_attacked([case], ("padding", "wrong_answer", "shuffled"), TOKENIZER, Config())
    assert nothing == {"padding": 0, "wrong_answer": 0, "shuffled": 0}
    padded = found[0].path
    assert [step.text for step in padded.steps] == ["5+3=8", "So we go on.", "8+4=12", "So we go on."]
    assert padded.verdict is Verdict.CORRECT
    for step in padded.steps:
        assert TOKENIZER.decode(padded.token_ids[step.token_start : step.token_end]).strip() == step.text
    assert found[1].path.verdict is Verdict.WRONG
