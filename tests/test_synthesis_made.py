"""Made problems: every template, the dials, the loader, a kill, duplicates and test sets."""

import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from data_gen.problems import ProblemSource, load_problems
from data_gen.synthesis.__main__ import main
from data_gen.synthesis.check import Refused, derive_answer
from data_gen.synthesis.contamination import RUN, TestSets, _places, subsequence_length, tokens
from data_gen.synthesis.draft import DIFFICULTIES, STEPS, TEMPLATES, Redraw, load_templates
from data_gen.synthesis.gate import Gate, skeleton, text_key
from data_gen.synthesis.gym import TASKS, taken_row
from data_gen.synthesis.journal import Journal
from data_gen.synthesis.made import candidate, cells
from grading.equivalence import grade

PROJECT = Path(__file__).parent.parent
load_templates()
MAKERS = sorted(
    {(maker, topic, difficulty) for (topic, difficulty), makers in TEMPLATES.items() for maker in makers},
    key=lambda item: (item[1], item[2], item[0].__name__),
)
UNNATURAL = [
    r"\b1 (?!of|or|and|to|more|m\b|cm\b|km\b)\w+s\b",
    r"\+ -",
    r"- -",
    r"  ",
    r"\ba [aeio]\w",
    r"\ba (8|11|18|8\d)\b",
    r"\bNone\b",
    r"\{[a-z_]+\}(?!\})(?<!\\circ\})(?<!_\{n\})",
    r"\b0 \w+s\b",
    r"\b1[a-z]\b",
]


@pytest.mark.parametrize(("maker", "topic", "difficulty"), MAKERS, ids=lambda v: getattr(v, "__name__", v))
def test_every_template_makes_natural_text_of_its_difficulty_with_a_derived_answer(maker, topic, difficulty):
    texts = set()
    for k in range(4):
        generator = random.Random(k)
        while True:
            try:
                draft = maker(generator, difficulty)
                break
            except Redraw:
                continue
        low, high = STEPS[difficulty]
        assert low <= draft.steps <= high
        derived = derive_answer(draft.formal, draft.also, twice=True, form=draft.form)
        assert grade(derived.answer, derived.answer).verdict == "CORRECT"
        text = draft.text
        assert re.search(r"[.?:]$|\$\.?$", text)
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
        prose = re.sub(r"(?<!\\)\$.+?(?<!\\)\$", "$", text)
        assert not [pattern for pattern in UNNATURAL if re.search(pattern, prose)], text
        texts.add(text)
    assert len(texts) > 1


def test_every_topic_has_every_difficulty():
    assert {d for _, d in TEMPLATES} == set(DIFFICULTIES)
    assert {(t, d) for t, _ in TEMPLATES for d in DIFFICULTIES} == set(TEMPLATES)
    assert len({t for t, _ in TEMPLATES}) >= 14


def run(folder, *more, code=0):
    assert main(["--output", str(folder), "--workers", "0", *map(str, more)]) == code
    return [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]


def test_made_rows_are_read_by_the_loader(tmp_path, capsys):
    rows = run(tmp_path / "made", "--count", 150)
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["problems"] == 150 == summary["derived_twice"]
    source = ProblemSource(str(tmp_path / "made/problems.jsonl"))
    loaded = [p for split in ("train", "validation", "test") for p in load_problems(source, split, 0, 1000)]
    assert {(p.text, p.answer, p.topic, p.level) for p in loaded} == {
        (r["problem"], r["answer"], r["topic"], r["level"]) for r in rows
    }
    only = dataclasses.replace(source, kinds=("geometry",))
    assert {p.topic for p in load_problems(only, "train", 0, 1000)} == {"geometry"}


def test_the_dials(tmp_path, capsys):
    rows = run(tmp_path / "a", "--count", 12, "--topics", "calculus,geometry", "--difficulty", "hard")
    assert {(r["topic"], r["difficulty"]) for r in rows} == {("calculus", "hard"), ("geometry", "hard")}
    assert all(r["level"] >= 5 and len(r["derived_by"]) > 1 for r in rows)
    assert main(["--output", str(tmp_path / "b"), "--topics", "alchemy"]) == 2
    assert "alchemy" in capsys.readouterr().err
    run(tmp_path / "c", "--count", 4)
    assert main(["--output", str(tmp_path / "c"), "--count", "4", "--seed", "1"]) == 2
    assert "seed = 0, now it is 1" in capsys.readouterr().err


def test_a_small_cell_runs_out_and_says_so(tmp_path, capsys):
    """Few different problems: draws that come twice are rejected, and counted by reason."""
    folder = tmp_path / "few"
    assert main(
        [
            "--output",
            str(folder),
            "--workers",
            "0",
            "--count",
            "70",
            "--topics",
            "quadratic_equations",
            "--difficulty",
            "easy",
            "--seed",
            "3",
        ]
    ) in (0, 3)
    texts = [json.loads(line)["problem"] for line in (folder / "problems.jsonl").read_text().splitlines()]
    assert len(set(map(text_key, texts))) == len(texts)
    reasons = {json.loads(line)["reason"] for line in (folder / "rejected.jsonl").read_text().splitlines()}
    assert reasons <= {"duplicate_text", "duplicate_statement"}
    assert reasons


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path):
    command = [sys.executable, "-m", "data_gen.synthesis", "--count", "150", "--workers", "1", "--output"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    killed, journal = tmp_path / "killed", tmp_path / "killed/journal.jsonl"
    child = subprocess.Popen(
        [*command, str(killed)], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 240
    while not (journal.is_file() and journal.read_bytes().count(b"\n") >= 64):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) < 150
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])  # cut in the middle of a row
    run(killed, "--count", 150)
    run(tmp_path / "whole", "--count", 150)
    for name in ("problems.jsonl", "rejected.jsonl", "journal.jsonl"):
        assert (killed / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_more_can_be_asked_for_later(tmp_path):
    first = run(tmp_path / "a", "--count", 20)
    assert run(tmp_path / "a", "--count", 30)[:20] == first


def test_a_unit_depends_on_seed_and_number_only():
    wanted = cells()
    assert candidate(0, 7, wanted) == candidate(0, 7, wanted)
    assert candidate(0, 7, wanted) != candidate(1, 7, wanted)


def test_two_runs_in_one_folder_are_noticed(tmp_path, capsys):
    run(tmp_path / "a", "--count", 3)
    journal = tmp_path / "a/journal.jsonl"
    with Journal(tmp_path / "a", json.loads((tmp_path / "a/settings.json").read_text())):
        assert main(["--output", str(tmp_path / "a"), "--count", "5"]) == 2
        assert "another run is writing to it" in capsys.readouterr().err
    journal.write_text(journal.read_text() + journal.read_text().splitlines()[0] + "\n")
    assert main(["--output", str(tmp_path / "a"), "--count", "5"]) == 2
    assert "unit 0 is there twice" in capsys.readouterr().err


def row(text, formal=None, topic="t"):
    return {"problem": text, "formal": formal, "topic": topic}


def test_the_gate_knows_duplicates():
    gate = Gate(TestSets([]))
    solve = {"kind": "solve", "equations": ["3x + 4 = 10"]}
    gate.admit(row("Solve $3x + 4 = 10$.", solve))
    for other, reason in (
        (row("solve  $3x+4 = 10$", None), "duplicate_text"),
        (row("What is $y$ if $3y + 4 = 10$?", {"kind": "solve", "equations": ["3y + 4 = 10"]}), "duplicate_statement"),
    ):
        with pytest.raises(Refused) as refused:
            gate.admit(other)
        assert refused.value.reason == reason
    gate.admit(row("What is $y$ if $3y + 5 = 10$?", {"kind": "solve", "equations": ["3y + 5 = 10"]}))


def test_the_gate_of_a_writer_knows_problems_that_differ_in_names_and_numbers():
    gate = Gate(TestSets([]), most_alike=1)
    gate.admit(row("Every day Anna eats 3 of her 21 plums. How many are left after 2 days?"))
    with pytest.raises(Refused, match="alike"):
        gate.admit(row("Every day Boris eats 4 of her 30 plums. How many are left after 5 days?"))
    gate.admit(row("Every day Anna picks 3 plums. How many has she after 21 days?"))
    assert skeleton("What does Eva pay for 1,200 g?") == skeleton("What does Tim pay for 3.5 g?")


LONG = (
    "A train leaves the city at noon and runs north at 60 km per hour until it meets a second train that left two hours"
    " later"
)


def test_overlap_with_test_sets():
    tests = TestSets([LONG, "What is 15% of 80?"])
    words = LONG.split()
    thirteen = " ".join(words[3 : 3 + RUN])
    assert tests.rule_met(f"Somebody says: {thirteen}. So what?") == "run"
    assert tests.rule_met("Well, what is 15% of 80? Say it.") == "whole"
    assert tests.rule_met("What is 15% of 90?") is None
    kept = [w for k, w in enumerate(words) if k % 4 != 3]  # no 13 in a row, but 3 of 4 words in order
    assert tests.rule_met(" ".join(kept)) == "subsequence"
    assert tests.rule_met("A bus drives 60 km per hour and stops at noon. How far has it come by then?") is None


def test_common_subsequences_are_as_long_as_by_the_textbook():
    generator = random.Random(0)
    for _ in range(200):
        a, b = ([generator.choice("abcd") for _ in range(generator.randint(1, 25))] for _ in range(2))
        table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
        assert subsequence_length(_places(a), b) == table[-1][-1]
        assert table[-1][-1] >= sum(m.size for m in SequenceMatcher(None, a, b).get_matching_blocks())


def test_tokens_leave_punctuation_out():
    assert tokens("If $\\frac{1}{2}x = 1,250$, what is x?") == [
        "if",
        "\\frac",
        "1",
        "2",
        "x",
        "1250",
        "what",
        "is",
        "x",
    ]


def test_a_run_avoids_its_test_set(tmp_path):
    first = run(tmp_path / "a", "--count", 40)
    avoid = tmp_path / "test.jsonl"
    avoid.write_text("".join(json.dumps({"question": r["problem"]}) + "\n" for r in first[:20]))
    second = run(tmp_path / "b", "--count", 40, "--avoid", avoid)
    assert not {r["problem"] for r in first[:20]} & {r["problem"] for r in second}
    assert "contaminated" in (tmp_path / "b/rejected.jsonl").read_text()


def entry_of_gym(**changes):
    item = {"question": "Calculate 5 - 3 - 6.", "answer": "-4", "metadata": {"expression": "5 - 3 - 6"}} | changes
    return item, lambda answer, entry: float(answer == "-4")


def test_rows_of_reasoning_gym_are_derived_where_the_language_can():
    item, score = entry_of_gym()
    assert taken_row("basic_arithmetic", item, score)["derived_by"] == ["reasoning-gym", "sympy", "arithmetic"]
    item, score = entry_of_gym(answer="-5")
    with pytest.raises(Refused, match="own_score"):
        taken_row("basic_arithmetic", item, score)
    with pytest.raises(Refused, match="wrong_answer"):
        taken_row("basic_arithmetic", item, lambda answer, entry: 1.0)  # a score that says yes to all


def test_reasoning_gym_is_a_source(tmp_path, capsys):
    if "reasoning_gym" not in sys.modules:
        pytest.importorskip("reasoning_gym")
    rows = run(tmp_path / "gym", "--source", "gym", "--count", 22)
    assert {r["topic"] for r in rows} == set(TASKS)
    assert main(["--output", str(tmp_path / "g"), "--source", "gym", "--tasks", "sudoku"]) == 2


def test_the_independent_check_reads_texts_and_notices_wrong_answers(tmp_path):
    pytest.importorskip("flint")
    from bench.synthesis_check import check_row

    rows = run(tmp_path / "made", "--count", 270)
    assert [r["problem"] for r in rows if check_row(r["problem"], r["answer"]) != "right"] == []
    plain = [r for r in rows if re.fullmatch(r"-?\d+", r["answer"])]
    wrong = [check_row(r["problem"], str(int(r["answer"]) + 1)) for r in plain]
    assert len(wrong) > 100
    assert "right" not in wrong
