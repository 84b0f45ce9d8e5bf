"""Failure classes, groups and the choice of examples."""

import pytest
from eval_records import model, path, problem

from common.records import Verdict
from eval.collect import ModelPools
from eval.failures import MAX_TEXT, Cases, examples, failure_groups, failure_of
from eval.pools import Pool
from eval.prm_quality import KnownSteps
from eval.schema import read_record, write_record

CLEAN, BAD = KnownSteps(None), KnownSteps(1, habit="sign_slip")


@pytest.mark.parametrize(
    ("each", "judgement", "expected"),
    [
        (path("7"), CLEAN, None),
        (path("7"), None, None),
        (path("7"), BAD, ("hidden error", "sign_slip")),
        (path("8"), BAD, ("wrong step", "sign_slip")),
        (path("8"), KnownSteps(0), ("wrong step", None)),
        (path("8"), CLEAN, ("wrong conclusion", None)),
        (path("8"), KnownSteps(None, unknown=True), ("unclear", None)),
        (path("8"), None, ("wrong answer", None)),
        (path(None), BAD, ("no answer", None)),
        (path("7", cut=True), CLEAN, ("cut", None)),
        (path("9", verdict=Verdict.TIMEOUT), BAD, None),
    ],
)
def test_class_of_a_path(each, judgement, expected):
    assert failure_of(each, judgement) == expected


def pools(name, groups, problems, greedy="8"):
    """Groups: for each problem (answer, scores, judgement) of each path."""
    sampled = Pool(
        1.0,
        [
            [path(a, of=p, name=(name, g)) for g, (a, _, _) in enumerate(row)]
            for p, row in zip(problems, groups, strict=True)
        ],
        scores=[[scores for _, scores, _ in row] for row in groups],
        judgements=[[judgement for _, _, judgement in row] for row in groups],
    )
    first = Pool(0.0, [[path(greedy, of=p, name="greedy")] for p in problems], None, [[CLEAN]] * len(problems))
    return ModelPools(name, problems, first, sampled, sampled, {})


PROBLEMS = [problem(0, "chain"), problem(1, "equation")]
BASE = pools(
    "base",
    [
        [("8", [0.9, 0.3], BAD), ("8", [0.9, 0.7], BAD), ("7", [0.9, 0.9], CLEAN), ("7", [0.4, 0.9], CLEAN)],
        [("8", [0.9, 0.1], BAD), ("7", [0.9, 0.8], BAD), (None, [0.5, 0.5], CLEAN), ("8", [0.2, 0.2], CLEAN)],
    ],
    PROBLEMS,
)
POLICY = pools("policy", [[("7", [0.9, 0.9], CLEAN)] * 4, [("8", [0.9, 0.6], BAD)] * 4], PROBLEMS, greedy="7")


def test_groups_by_hand():
    rows = failure_groups(BASE, POLICY)
    counts = {(r.topic, r.failure, r.habit): (r.base_count, r.policy_count) for r in rows}
    assert counts == {
        ("chain", "wrong step", "sign_slip"): (2, 0),
        ("equation", "wrong step", "sign_slip"): (1, 4),
        ("equation", "hidden error", "sign_slip"): (1, 0),
        ("equation", "no answer", None): (1, 0),
        ("equation", "wrong conclusion", None): (1, 0),
    }
    assert rows[0].topic == "chain"
    assert rows[0].base_share == pytest.approx(2 / 8)
    second = next(r for r in rows if (r.topic, r.failure) == ("equation", "wrong step"))
    assert second.policy_share == pytest.approx(4 / 8)


def test_example_of_a_group_is_the_failure_the_prm_likes_best():
    first = failure_groups(BASE, POLICY)[0]
    assert first.base_example.path_score == pytest.approx(0.7)
    assert first.policy_example is None
    assert [(s.text, s.score, s.mark) for s in first.base_example.steps] == [("a", 0.9, "right"), ("b", 0.7, "wrong")]
    assert first.base_example.tail == "Answer: 8"


def test_examples_carry_the_right_titles():
    found = examples(BASE, POLICY, threshold=0.5, limit=100)
    by_title = {}
    for case in found:
        by_title.setdefault((case.title, case.model), []).append(case)
    assert [c.path_score for c in by_title["wrong answer, high score", "base"]] == pytest.approx([0.7, 0.3, 0.2, 0.1])
    assert len(by_title["PRM finds the error", "base"]) == 2
    assert len(by_title["PRM misses the error", "base"]) == 2
    assert len(by_title["PRM misses the error", "policy"]) == 4
    assert len(by_title["PRM suspects a right path", "base"]) == 2  # 0.4 on a clean one, 0.2 on a wrong conclusion
    assert len(by_title["right answer, wrong step", "base"]) == 1
    assert len(by_title["solved by the policy, not by the base", "base"]) == 2
    assert len(by_title["solved by the policy, not by the base", "policy"]) == 2


def test_limit_is_kept_and_shared_between_titles():
    found = examples(BASE, POLICY, threshold=0.5, limit=5)
    assert len(found) == 5
    assert len({case.title for case in found}) >= 3
    assert examples(BASE, POLICY, threshold=0.5, limit=0) == []
    assert found == examples(BASE, POLICY, threshold=0.5, limit=5)


def test_works_without_prm_and_oracle():
    base, policy = (model(n, PROBLEMS, s, with_prm=False, with_oracle=False) for n, s in (("base", 0.5), ("policy", 1)))
    rows = failure_groups(base, policy)
    assert {(r.failure, r.base_count, r.policy_count) for r in rows} == {("wrong answer", 4, 0)}
    assert rows[0].base_example.steps[0].score is None
    assert rows[0].base_example.steps[0].mark == ""
    assert {case.title for case in examples(base, policy, threshold=None)} == {"solved by the policy, not by the base"}


def test_long_texts_are_cut_and_bad_scores_are_not_shown():
    asked = problem(0)
    long = path("8", steps=("x" * 100_000, "b"), of=asked)
    one = Pool(1.0, [[long]], scores=[[[0.5, float("nan")]]], judgements=[[KnownSteps(0)]])
    group = failure_groups(ModelPools("base", [asked], one, one, one, {}), model("policy", [asked], 1.0))[0]
    assert len(group.base_example.steps[0].text) == MAX_TEXT
    assert group.base_example.steps[0].text.endswith("…")
    assert [s.score for s in group.base_example.steps] == [0.5, None]
    assert [s.mark for s in group.base_example.steps] == ["wrong", "after"]


def test_cases_round_trip(tmp_path):
    asked = [problem(0)]
    odd = pools("base", [[("8\ud800\x00\n</script>", [0.9, 0.3], BAD)]], asked)
    found = examples(odd, pools("policy", [[("7", [0.9, 0.9], CLEAN)]], asked, greedy="7"), threshold=0.5)
    assert found[0].answer == "8?\x00\n</script>"
    cases = Cases(failures=failure_groups(BASE, POLICY), examples=found)
    write_record(tmp_path / "cases.json", cases)
    assert read_record(tmp_path / "cases.json", Cases) == cases
