"""A PRM from a file of labelled solutions: the command line, and the example and command of docs/migrating.md."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path

import pytest
import torch
from prm_support import PROMPT, TOKENIZERS, character_tokenizer, rollout, tiny_policy

from common.errors import InputError
from common.prompts import PromptTemplate
from common.records import IGNORED, LabelledPath, Problem
from data_gen.stepwise import LabelledSteps, from_labelled_path, read_trl, write_trl
from prm.fit import last_step_only, main, solution_inputs
from prm.inputs import labelled_inputs, text_input
from prm.score import PRMScorer

PAGE = Path(__file__).parent.parent / "docs" / "migrating.md"
QUICK = ["prm.epochs=1", "prm.head_epochs=0", "prm.holdout=0.3"]


def trl_rows(count: int = 40) -> list[dict]:
    """Sums of two digits, some of them wrong, in TRL's stepwise format."""
    rng = random.Random(0)
    rows = []
    for index in range(count):
        first, second = rng.randint(1, 4), rng.randint(1, 4)
        wrong = index % 3 == 0
        steps = [f"{first}+{second}={first + second + wrong}.", "so that is it"]
        rows.append(
            {"prompt": f"Compute {first}+{second}, case {index}.", "completions": steps, "labels": [not wrong] * 2}
        )
    return rows


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a random model of two layers, its tokenizer, and rows; it is the working directory."""
    tiny_policy(tmp_path / "my-model")
    character_tokenizer().save_pretrained(tmp_path / "my-model")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in trl_rows()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands() -> list[list[str]]:
    found = re.findall(r"^python -m prm\.fit (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == 2
    return [shlex.split(command) for command in found]


def command(output: str, *options: str, rows: str = "rows.jsonl", kind: str = "trl") -> list[str]:
    return ["--model", "my-model", "--input", rows, "--format", kind, "--output", output, *options]


def test_example_of_the_page_runs(here: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert [len(scores) for scores in names["scores"]] == [2, 2]
    assert all(0 < score < 1 for scores in names["scores"] for score in scores)
    assert len(names["train"]) + len(names["held_out"]) == 40
    assert (names["kept"].right_steps, names["kept"].wrong_steps) == (52, 28)
    assert (here / "my-prm" / "prm.json").is_file()


@pytest.mark.parametrize("arguments", commands(), ids=["defaults", "nearest_to_trl"])
def test_commands_of_the_page_write_a_prm_that_scores(here: Path, capsys, arguments: list[str]) -> None:
    assert main(arguments) == 0
    output = arguments[arguments.index("--output") + 1]
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row["train"] + row["held_out"] == row["rows read"] == 40
    scorer = PRMScorer.load(output)
    assert scorer.calibration.threshold == row["threshold"]
    one = text_input(character_tokenizer(), [5, 6], ["1+1=2.", "so"])
    assert len(scorer.score_inputs([one])[0]) == 2
    assert json.loads((here / output / "metrics.json").read_text())["inputs"]["kept_paths"] == 40
    assert main(arguments) == 2
    assert "holds a PRM already" in capsys.readouterr().err


def test_every_format_is_fitted(here: Path) -> None:
    """The same solutions as ProcessBench and Math-Shepherd rows give the same kind of PRM."""
    from data_gen.formats import WRITERS, load_steps

    solutions, _ = load_steps(here / "rows.jsonl", "trl")
    for kind in ("processbench", "math_shepherd"):
        rows = [WRITERS[kind](one).rows[0] for one in solutions]
        (here / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert main(command(kind, *QUICK, rows=f"{kind}.jsonl", kind=kind)) == 0
        assert (here / kind / "prm.json").is_file()


def test_bad_input_is_one_line_and_leaves_no_prm(here: Path, capsys) -> None:
    (here / "bad.jsonl").write_text(json.dumps(trl_rows(1)[0] | {"labels": [1]}) + "\n")
    for arguments, seen in (
        (command("a", rows="bad.jsonl"), "bad.jsonl, row 1, 1 labels for 2 steps"),
        (command("b", rows="none.jsonl"), "none.jsonl: no such file"),
        (command("c", "prm.max_length=8"), "no label is left in 40 paths (40 of them cut at the length limit)"),
        (command("d", "prm.epoch=1"), "the closest known key is 'prm.epochs'"),
        (["--model", "nowhere", *command("e")[2:]], "no tokenizer to load"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert seen in error
        assert error.count("\n") == 1
    assert not list(here.glob("*/prm.json"))


def test_a_fit_that_was_begun_goes_on_only_as_it_was_begun(here: Path, capsys) -> None:
    assert main(command("out", "prm.max_length=8")) == 2
    capsys.readouterr()
    assert main(command("out", *QUICK)) == 2
    assert "another fit was begun here (settings differ)" in capsys.readouterr().err


def test_solution_inputs_keep_soft_and_ignored_labels_and_group_by_problem() -> None:
    tokenizer = character_tokenizer()
    solutions = [
        LabelledSteps("Compute 1+1.", ("1+1=2.", "so 2"), (0.9, IGNORED)),
        LabelledSteps("Compute 1+1.", ("1+1=3.",), (0.0,)),
        LabelledSteps("Compute 2+1.", ("2+1=3.",), (IGNORED,)),
        LabelledSteps("Compute 3+1.", ("3+1=4.",)),
    ]
    inputs, counts = solution_inputs(solutions, tokenizer, PromptTemplate())
    assert [one.labels for one in inputs] == [(0.9, IGNORED), (0.0,)]
    assert inputs[0].problem_id == inputs[1].problem_id
    assert (counts.paths, counts.paths_without_label, counts.ignored_steps) == (4, 2, 1)
    assert tokenizer.decode(inputs[1].token_ids) == "Compute 1+1.\n1+1=3."
    with pytest.raises(InputError, match="no label is left in 2 paths"):
        solution_inputs(solutions[2:], tokenizer, PromptTemplate())


@pytest.mark.parametrize("name", TOKENIZERS)
def test_exported_paths_give_the_inputs_of_the_run(name: str) -> None:
    """Ids, positions and labels of a path that went through a TRL row are those that stage ``prm`` trains on."""
    tokenizer = TOKENIZERS[name]()
    labelled = LabelledPath(rollout(tokenizer), (1, IGNORED, 0), 2, (0,) * 3, ("value",) * 3, "oracle")
    (ours,), _ = labelled_inputs([labelled], {"p": tokenizer(PROMPT)["input_ids"]})
    row = write_trl(from_labelled_path(labelled, Problem("p", PROMPT.strip(), "2", "s", "t"))).rows[0]
    (theirs,), _ = solution_inputs(read_trl(row).rows, tokenizer, PromptTemplate())
    assert (theirs.token_ids, theirs.step_positions, theirs.labels, theirs.prompt_length) == (
        ours.token_ids,
        ours.step_positions,
        ours.labels,
        ours.prompt_length,
    )


def test_last_step_only_ignores_the_others_and_a_cut_last_step() -> None:
    tokenizer = character_tokenizer()
    whole = text_input(tokenizer, [5], ["ab", "cd", "ef"], labels=[1, 1, 0])
    assert last_step_only(whole).labels == (IGNORED, IGNORED, 0)
    cut = text_input(tokenizer, [5], ["ab", "cd", "ef"], labels=[1, 1, 0], max_length=6)
    assert cut.dropped_steps == 1
    assert not last_step_only(cut).has_label


def test_last_step_only_trains_another_prm(here: Path) -> None:
    assert main(command("all", *QUICK)) == 0
    assert main(command("last", "--last-step-only", *QUICK)) == 0
    one = text_input(character_tokenizer(), [5, 6], ["1+1=2.", "so"])
    scores = [torch.tensor(PRMScorer.load(name).score_inputs([one])[0]) for name in ("all", "last")]
    assert not torch.equal(*scores)
