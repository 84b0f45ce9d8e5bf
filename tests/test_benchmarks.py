"""Public benchmarks: rows, prompts, outputs that survive a kill, and figures worked out by hand."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from tokenizer_toys import byte_level_tokenizer, tiny_llama

from common.config import BaseSection
from common.errors import InputError
from common.records import FinishReason
from data_gen.engines import Completion, EngineStats
from eval.benchmark import main
from eval.benchmark_outputs import OutputFolder, drawing, sample_all
from eval.benchmark_prompt import BenchmarkPrompt, template_kind
from eval.benchmark_rows import hub_rows, questions, worked_examples
from eval.benchmark_spec import Prompt, Sampling, Shots, find_benchmark, load_registry

CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
HUB = {
    "gsm8k": {"question": "How many?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"},
    "math500": {"problem": "Find x.", "answer": "\\frac{1}{2}", "solution": "…", "subject": "Algebra", "level": 3},
    "aime24": {"id": 60, "problem": "Find m+n.", "answer": "025", "solution": "…", "url": "…", "year": "2024"},
    "amc23": {"id": 0, "question": "What is it?", "answer": 27.0, "url": "…"},
    "minerva": {"question": "How bright?", "answer": "4.5e33"},
    "olympiadbench": {
        "question": "Find all triples.",
        "context": "Let n be whole.",
        "final_answer": ["$(1,8)$", "$(2,7)$"],
        "error": "1e-1,",
        "subfield": "Algebra",
    },
}
"""A row of each benchmark with the fields it has on the hub."""
GOLD = {"gsm8k": "5", "math500": "\\frac{1}{2}", "aime24": "025", "amc23": "27.0", "minerva": "4.5e33"}
GOLD |= {"olympiadbench": "$(1,8)$, $(2,7)$"}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run(capsys, *arguments):
    """Run the command; return the report on its last line."""
    assert main(["--resamples", "100", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def refused(capsys, *arguments):
    """Run a command that must fail with one line; return it."""
    assert main(list(map(str, arguments))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


# --- registry and rows


def test_the_registry_holds_every_benchmark_with_its_own_policy():
    registry = load_registry()
    assert set(registry) == {*HUB, "file"}
    assert registry["aime24"].sampling == Sampling(samples=32, temperature=0.6, top_p=0.95, max_new_tokens=3072)
    counts = {name: one.source.problems for name, one in registry.items() if one.source}
    assert counts == {"gsm8k": 1319, "math500": 500, "aime24": 30, "amc23": 40, "minerva": 272, "olympiadbench": 674}
    assert registry["minerva"].settings.relative_tolerance == 1e-4
    assert registry["gsm8k"].settings.is_exact
    for one in registry.values():
        assert one.sampling.samples == 1 or one.sampling.temperature > 0


def test_a_registry_with_a_wrong_entry_is_refused(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("a: {fields: {problem: [p], answer: [a], gold: marks}, sampling: {}}")
    with pytest.raises(InputError, match=r"fields\.gold: Input should be 'text', 'marker', 'list' or 'auto'"):
        load_registry(path)


@pytest.mark.parametrize("name", HUB)
def test_rows_of_the_hub_become_problems(name, monkeypatch):
    asked = []
    fake = SimpleNamespace(load_dataset=lambda *a, **k: asked.append((a, k)) or [HUB[name]])
    monkeypatch.setitem(sys.modules, "datasets", fake)
    benchmark = find_benchmark(name)
    source = benchmark.source
    (found,) = questions(hub_rows(source.hub, source.config, source.split, name), benchmark, "hub")
    assert asked == [((source.hub, source.config), {"split": source.split})]
    assert found.problem.answer == GOLD[name]
    assert found.problem.source == name
    assert found.tolerance == (0.1 if name == "olympiadbench" else 0.0)
    if name == "olympiadbench":
        assert found.problem.text == "Let n be whole.\nFind all triples."
    if name == "math500":
        assert (found.problem.topic, found.problem.level) == ("Algebra", 3)


def test_rows_come_through_the_real_library_and_its_failures_are_one_line(tmp_path, monkeypatch):
    """A folder of data files stands in for the hub's repository; another name needs the network there is not."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "test.jsonl", [HUB["gsm8k"]] * 2)
    assert hub_rows(str(folder), None, "test", "gsm8k") == [HUB["gsm8k"]] * 2
    with pytest.raises(InputError, match="gsm8k: cannot load nobody/nothing from the hub"):
        hub_rows("nobody/nothing", None, "test", "gsm8k")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Q"}, r"row 1: no field 'answer'; it has \['question'\]"),
        ({"question": " ", "answer": "#### 1"}, r"row 1, field 'question': ' ', want text"),
        ({"question": "Q", "answer": "first\nsecond"}, "no '#### answer' line"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row, message):
    with pytest.raises(InputError, match=message):
        questions([row], find_benchmark("gsm8k"), "rows")


def test_worked_examples_lose_the_calculator_marks(tmp_path):
    rows = write(tmp_path / "train.jsonl", [{"question": "How many?", "answer": HUB["gsm8k"]["answer"]}] * 2)
    found = worked_examples(find_benchmark("gsm8k").shots, 1, rows, "gsm8k")
    assert found == [("How many?", "2 + 3 = 5\n#### 5")]
    with pytest.raises(InputError, match="2 rows for --shots 3"):
        worked_examples(find_benchmark("gsm8k").shots, 3, rows, "gsm8k")
    with pytest.raises(InputError, match="want --shot-rows FILE"):
        worked_examples(Shots(), 1, None, "math500")


# --- prompts


def test_prompts_are_the_registry_texts():
    tokenizer = byte_level_tokenizer()
    prompt = Prompt(instruction="Box it.")
    assert template_kind("auto", tokenizer) == "plain"
    plain = BenchmarkPrompt.of_benchmark(prompt, "plain", [])
    assert plain.text("2+2?", tokenizer) == "Question: 2+2?\nBox it.\nAnswer:"
    shot = BenchmarkPrompt.of_benchmark(prompt, "plain", [("1+1?", "It is 2.")])
    assert shot.text("2+2?", tokenizer) == "Question: 1+1?\nAnswer: It is 2.\n\nQuestion: 2+2?\nAnswer:"
    assert shot.stop == ("\nQuestion:",)
    with pytest.raises(InputError, match="no chat template"):
        BenchmarkPrompt.of_benchmark(prompt, "chat", []).text("2+2?", tokenizer)
    tokenizer.chat_template = CHAT
    assert template_kind("auto", tokenizer) == "chat"
    chat = BenchmarkPrompt.of_benchmark(prompt, "chat", [])
    assert chat.text("2+2?", tokenizer) == "<user>2+2?\nBox it.</user><assistant>"
    shot = BenchmarkPrompt.of_benchmark(prompt, "chat", [("1+1?", "2.")])
    assert shot.text("2+2?", tokenizer) == "<user>1+1?</user><assistant>2.</assistant><user>2+2?</user><assistant>"
    assert tokenizer.decode(shot.ids("2+2?", tokenizer)) == shot.text("2+2?", tokenizer)
    trained = BenchmarkPrompt.of_training(BaseSection(instruction="Steps, please.", stop=("###",)))
    assert (trained.text("2+2?", tokenizer), trained.stop) == ("Steps, please.\n2+2?\n", ("###",))


# --- outputs


class Answering:
    """An engine that answers "The answer is <number of its call>", and dies at a given call."""

    def __init__(self, tokenizer, dies_at=None):
        self.tokenizer, self.dies_at, self.calls, self.stats = tokenizer, dies_at, 0, EngineStats()

    def sample(self, prompts, *, n, **settings):
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        ids = tuple(self.tokenizer(f"The answer is {self.calls}. Stop here")["input_ids"])
        self.stats.sampled_tokens += n * len(prompts) * len(ids)
        return [[Completion(ids, FinishReason.STOP) for _ in range(n)] for _ in prompts]


def drawn(folder, engine, count, settings=None):
    tokenizer = engine.tokenizer
    benchmark = find_benchmark("gsm8k")
    asked = questions([{"question": f"Q{k}", "answer": "#### 1"} for k in range(count)], benchmark, "rows")
    sampling = Sampling(samples=2, temperature=1.0, top_p=1.0, max_new_tokens=8)
    draw = drawing(engine, tokenizer, lambda text: tokenizer(text)["input_ids"], sampling, (" Stop",), 0)
    outputs = OutputFolder(folder, settings or {"samples": 2})
    return sample_all(outputs, asked, draw, chunk=2)


def test_a_killed_run_goes_on_by_problem_id(tmp_path):
    tokenizer = byte_level_tokenizer()
    with pytest.raises(KeyboardInterrupt):
        drawn(tmp_path, Answering(tokenizer, dies_at=3), 6)
    kept = (tmp_path / "outputs.jsonl").read_bytes()
    assert kept.count(b"\n") == 4
    (tmp_path / "outputs.jsonl").write_bytes(kept[:-20])  # the kill came in the middle of a row
    engine = Answering(tokenizer)
    found = drawn(tmp_path, engine, 6)
    assert engine.calls == 2
    texts = [[sample.text for sample in group] for group in found.values()]
    assert texts == [[f"The answer is {k}."] * 2 for k in (1, 1, 2, 1, 1, 2)]  # cut before the stop string
    again = Answering(tokenizer)
    assert drawn(tmp_path, again, 6) == found
    assert again.calls == 0
    assert len(drawn(tmp_path, again, 3)) == 3


def test_outputs_of_other_settings_are_not_taken(tmp_path):
    tokenizer = byte_level_tokenizer()
    drawn(tmp_path, Answering(tokenizer), 1)
    with pytest.raises(InputError, match="outputs were made with samples = 2, now it is 4"):
        drawn(tmp_path, Answering(tokenizer), 1, {"samples": 4})


# --- figures of recorded outputs


def recorded_rows():
    """Right of four samples: 4 (two by text, one by value, one in a box), 1, 0."""
    right = ["The answer is 5.", "So the total is 5.0.", "\\boxed{5}", "The answer is 5."]
    mixed = ["The answer is 7.", "The answer is 8.", "The answer is 8.", "No idea"]
    second = [{"response": text, "correct": k == 1} for k, text in enumerate(mixed)]
    beyond = ["\\boxed{" + "(" * 1500 + "1}", "The answer is 3.", "The answer is 4.", "The answer is 3."]
    return [
        {"question": "A", "answer": "5", "samples": [{"response": text, "correct": True} for text in right]},
        {"question": "B", "answer": "7", "samples": second},
        {"question": "C", "answer": "1", "samples": [{"response": text, "correct": False} for text in beyond]},
    ]


def test_figures_by_hand(tmp_path, capsys):
    """avg@4 = (4 + 1 + 0) / 12; pass@2 = (1 + 1/2 + 0) / 3; majority of 4: 5 is right, 8 and 3 are not."""
    rows = write(tmp_path / "pool.jsonl", recorded_rows())
    found = run(capsys, "--benchmark", "gsm8k", "--recorded", rows, "--output", tmp_path / "out")
    assert (found["problems"], found["samples"], found["problems_published"]) == (3, 4, 1319)
    assert found["avg"]["value"] == pytest.approx(5 / 12)
    low, high = found["avg"]["ci95"]
    assert 0 <= low < 5 / 12 < high <= 1
    assert found["pass_at"]["2"]["value"] == pytest.approx(1.5 / 3)
    assert found["pass_at"]["4"]["value"] == pytest.approx(2 / 3)
    assert found["majority"]["4"]["value"] == pytest.approx(1 / 3)
    assert found["answered"]["value"] == pytest.approx(11 / 12)
    assert found["tokens"]["value"] is None
    assert found["verdicts"] == {"CORRECT": 5, "WRONG": 5, "UNPARSED": 1, "TOO_LONG": 1}
    agreement = found["recorded"]
    assert (agreement["samples"], agreement["equal"]) == (12, 10)
    assert (agreement["only_ours_right"], agreement["only_recorded_right"]) == (1, 1)
    assert agreement["recorded_avg"]["value"] == pytest.approx(5 / 12)
    assert json.loads((tmp_path / "out/result.json").read_text()) == found
    verdicts = [json.loads(line) for line in (tmp_path / "out/verdicts.jsonl").read_text().splitlines()]
    assert [one["verdict"] for one in verdicts[1]["samples"]] == ["CORRECT", "WRONG", "WRONG", "UNPARSED"]


def test_the_policy_is_the_benchmark_s(tmp_path, capsys):
    """9.6001 is 9.6 to 1e-4 on Minerva and not on GSM8K; a row's own error is honoured on OlympiadBench."""
    near = {"question": "A", "answer": "9.6", "samples": ["\\boxed{9.6001}"]}
    rows, out = write(tmp_path / "near.jsonl", [near]), ("--output", tmp_path / "out")
    assert run(capsys, "--benchmark", "minerva", "--recorded", rows, *out)["avg"]["value"] == 1
    assert run(capsys, "--benchmark", "gsm8k", "--recorded", rows, *out)["avg"]["value"] == 0
    loose = ("--grading", "relative_tolerance=0.001")
    assert run(capsys, "--benchmark", "gsm8k", "--recorded", rows, *out, *loose)["avg"]["value"] == 1
    pair = {"question": "B", "final_answer": ["$2.5$", "$1$"], "error": "1e-1", "samples": ["\\boxed{1, 2.45}"]}
    rows = write(tmp_path / "pair.jsonl", [pair, {**pair, "question": "C", "error": None}])
    assert run(capsys, "--benchmark", "olympiadbench", "--recorded", rows, *out)["avg"]["value"] == 0.5


def test_one_of_several_models_in_a_pool(tmp_path, capsys):
    samples = [{"model": "a", "response": "The answer is 5."}, {"model": "b", "response": "The answer is 6."}]
    rows = write(tmp_path / "two.jsonl", [{"problem": "A", "answer": "5", "samples": samples}])
    out = ("--output", tmp_path / "out")
    assert run(capsys, "--benchmark", rows, "--recorded", rows, "--only", "model=a", *out)["avg"]["value"] == 1
    assert run(capsys, "--benchmark", rows, "--recorded", rows, "--only", "model=b", *out)["avg"]["value"] == 0
    assert "no sample with {'model': 'c'}" in refused(
        capsys, "--benchmark", rows, "--recorded", rows, "--only", "model=c"
    )


# --- the whole command on a tiny model


@pytest.fixture
def tiny_model(tmp_path):
    tokenizer = byte_level_tokenizer()
    folder = tmp_path / "model"
    tiny_llama(tokenizer, scale=3.0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_model_on_a_file(tiny_model, tmp_path, capsys):
    rows = write(
        tmp_path / "mine.jsonl", [{"problem": f"{k} + 1?", "answer": k + 1, "topic": "ab"[k % 2]} for k in range(5)]
    )
    common = ("--benchmark", rows, "--model", tiny_model, "--dtype", "float32", "--output", tmp_path / "out")
    sampled = ("--samples", 2, "--temperature", 1, "--max-new-tokens", 8, "--chunk", 2)
    found = run(capsys, *common, *sampled)
    assert (found["benchmark"], found["problems"], found["samples"]) == ("mine", 5, 2)
    assert found["settings"]["template"] == "plain"
    assert sum(found["verdicts"].values()) == 10
    assert set(found["by_topic"]) == {"a", "b"}
    assert found["sampled_tokens"] > 0
    assert 0 < found["tokens"]["value"] <= 8
    again = run(capsys, *common, *sampled)
    assert again["sampled_tokens"] == 0
    assert {**again, "seconds": 0, "sampled_tokens": 0} == {**found, "seconds": 0, "sampled_tokens": 0}
    assert "outputs were made with temperature = 1.0, now it is 0.5" in refused(
        capsys, *common, *sampled[:2], "--temperature", 0.5, *sampled[4:]
    )
    assert "--max-new-tokens 4000 do not fit the 128 positions" in refused(
        capsys, *common[:-1], tmp_path / "other", "--max-new-tokens", 4000
    )


def test_a_model_is_asked_as_it_was_trained(tiny_model, tmp_path, capsys):
    config = tmp_path / "mine.yaml"
    config.write_text("base: {instruction: 'Steps, please.', stop: ['###']}")
    rows = write(tmp_path / "mine.jsonl", [{"problem": "2 + 2?", "answer": 4}])
    assert main(["--benchmark", str(rows), "--model", str(tiny_model), "--config", str(config), "--show-prompt"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Steps, please.\n2 + 2?\n")
    assert "stop ['###']" in shown
    assert "gold '4'" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--benchmark", "gsm9k", "--model", "m"], "--benchmark gsm9k: want gsm8k, math500"),
        (["--benchmark", "gsm8k"], "want --model DIR, or --recorded FILE"),
        (["--benchmark", "aime24", "--model", "m", "--rows", "none.jsonl"], "none.jsonl: no such file"),
        (["--benchmark", "gsm8k", "--model", "m", "--limit", "0"], "--limit 0: want 1 or more"),
        (["--benchmark", "gsm8k", "--model", "m", "--grading", "exact"], "--grading 'exact': want name=value"),
        (
            ["--benchmark", "gsm8k", "--model", "m", "--grading", "unit=x"],
            "grading setting 'unit': want one of percent",
        ),
        (["--benchmark", "gsm8k", "--model", "m", "--config", "c", "--shots", "2"], "--config: the prompt is"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    assert message in refused(capsys, *arguments)


def test_greedy_samples_once(tiny_model, tmp_path, capsys):
    rows = write(tmp_path / "mine.jsonl", [{"problem": "2 + 2?", "answer": 4}])
    line = refused(capsys, "--benchmark", rows, "--model", tiny_model, "--samples", 4, "--output", tmp_path / "out")
    assert "--samples 4 at temperature 0: all are the same" in line


def test_without_a_name_the_registry_is_listed(capsys):
    assert main(["--benchmark"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in HUB)
