"""Work, calibration and the command of a plan."""

import dataclasses
import json

import pytest
from plan_shapes import hand_shape

from common.config import Config
from common.records import FinishReason, Path, Problem, Verdict
from common.runs import Run, write_rows
from policy.plan import main
from policy.plan_calibrate import calibrate, operations_by_part, part_of
from policy.plan_shape import read_shape
from policy.plan_work import Device, Lengths, Work, forward_operations, round_work, seconds

LENGTHS = Lengths(prompt=10, path=20, steps=4, kept=0.5, read=0.5)
SMALL = {
    "data": {"pool": 8, "validation": 4, "test": 5, "measure_paths": 2, "paths": 6},
    "prm": {"head_epochs": 0.5, "epochs": 2.0, "holdout": 0.25},
    "ppo": {"problems": 2, "paths": 4, "micro_batch": 8, "minibatches": 1, "epochs": 3, "batches": 6, "eval_every": 2},
    "eval": {"samples": 8, "temperatures": [0.0, 1.0], "temperature_samples": 2},
}


def small(**ppo):
    return Config.model_validate(SMALL | {"ppo": SMALL["ppo"] | ppo})


def tokens(config, **lengths):
    works = round_work(config, hand_shape(), dataclasses.replace(LENGTHS, **lengths))
    return {(work.stage, work.name): work.tokens for work in works}


def test_tokens_of_a_round_by_hand():
    assert tokens(small()) == {
        ("data", "measuring: prompts"): 8 * 10,
        ("data", "measuring"): 8 * 2 * 20,
        ("data", "sampling: prompts"): 4 * 10,
        ("data", "sampling"): 4 * 4 * 20,
        ("prm", "head"): 0.5 * 24 * 0.75 * 30 * 0.5,
        ("prm", "all weights"): 2 * 24 * 0.75 * 30 * 0.5,
        ("prm", "held-out checks"): 24 * 0.25 * 30 * 5,
        ("ppo", "sampling: prompts"): 6 * 2 * 10,
        ("ppo", "sampling"): 6 * 8 * 20,
        ("ppo", "log-probs"): 6 * 8 * 30 * 2,  # of the policy, which passes three times, and of the reference
        ("ppo", "PRM"): 6 * 8 * 30,
        ("ppo", "updates"): 6 * 8 * 30 * 3,
        ("ppo", "validation: prompts"): 4 * 4 * 10,
        ("ppo", "validation"): 4 * 4 * 2 * 20,
        ("eval", "base and policy: prompts"): 2 * 9 * 10,
        ("eval", "base and policy"): 2 * (5 * 9 + 4 * 3) * 20,
        ("eval", "PRM"): 2 * 5 * 9 * 30,
    }


def test_a_run_on_the_outcome_alone_has_no_prm_and_a_critic_has_its_own_passes():
    alone = tokens(small(anchor_fraction=1.0))
    assert not [name for name in alone if name[0] == "prm" or name[1] == "PRM"]
    critic = tokens(small(baseline="gae"))
    assert critic["ppo", "critic"] == critic["ppo", "updates"]
    once = tokens(small(epochs=1, kl_coef=0.0))
    assert once["ppo", "log-probs"] == 0


def test_monte_carlo_labels_complete_every_prefix():
    config = Config.model_validate(SMALL | {"data": SMALL["data"] | {"label_sources": ["monte_carlo"]}})
    assert tokens(config)["data", "labelling"] == 24 * 4 * 8 * 10
    binary = Config.model_validate(
        SMALL | {"data": SMALL["data"] | {"label_sources": ["monte_carlo"], "mc_search": "binary"}}
    )
    assert tokens(binary)["data", "labelling"] == 24 * 2 * 8 * 10


def test_operations_are_twice_the_weights_and_attention():
    shape = hand_shape()
    assert shape.multiplied == 100
    assert forward_operations(shape, 0) == 200
    assert forward_operations(shape, 3) == 200 + 4 * 2 * 4 * 3
    assert hand_shape(is_tied=False, parameters=140).multiplied == 100
    works = {(work.stage, work.name): work for work in round_work(small(), shape, LENGTHS)}
    a_token = 200 + 4 * 2 * 4 * 15
    assert works["ppo", "updates"].operations == works["ppo", "updates"].tokens * a_token * 3
    recomputed = round_work(small(gradient_checkpointing=True), shape, LENGTHS)
    assert next(work for work in recomputed if work.name == "updates").operations == (
        works["ppo", "updates"].tokens * a_token * 4
    )


def test_seconds_by_hand():
    device, shape = Device(flops=1000, bandwidth=50, utilisation=0.5, layer_seconds=1.0), hand_shape()
    train = Work("ppo", "updates", "train", 1, 6000)
    assert seconds(train, shape, device, 4, 8, 20, 2) == 6000 / (4 * 500)
    assert seconds(dataclasses.replace(train, everywhere=False), shape, device, 4, 8, 20, 2) == 12
    drawn = Work("ppo", "sampling", "decode", 1, 2000, paths=33)
    # 3 groups of 8 on each of 2 devices, 20 steps, each reads 100 weights of 2 bytes at 50 bytes a second
    assert seconds(drawn, shape, device, 2, 8, 20, 2) == 3 * 20 * 4 + 2000 / (2 * 500)
    launching = dataclasses.replace(device, bandwidth=1e9)
    assert seconds(drawn, shape, launching, 2, 8, 20, 2) == 3 * 20 * 2 + 2


def finished_run(root, config):
    """A run folder with made-up seconds: what ``calibrate`` reads, no model trained."""
    run = Run(root)
    problems = [Problem.create(f"{n} + 1 =", str(n + 1), source="test", topic="sum") for n in range(4)]
    paths = [
        Path(problem.id, problem.id, "x", (1,) * 20, (), "x", Verdict.WRONG, FinishReason.STOP) for problem in problems
    ]
    took = {"sample": 90.0, "label": 10.0, "ppo": 100.0, "eval": 40.0}
    for name in took:
        stage = run.stage(name)
        timer = stage.begin(config)
        if name == "sample":
            write_rows(stage.file("problems_train.jsonl"), (problem.to_row() for problem in problems))
            write_rows(stage.file("paths.jsonl"), (path.to_row() for path in paths))
        if name == "ppo":
            parts = {"sampling": 8.0, "grading": 1.0, "logprobs": 2.0, "update": 4.0}
            for step in range(6):
                stage.log({"step": step, **{f"seconds/{part}": value for part, value in parts.items()}})
        timer.finish(kept=2)
        done = json.loads(stage.file("DONE").read_text()) | {"seconds": took[name]}
        stage.file("DONE").write_text(json.dumps(done))
    return run


def test_a_calibrated_plan_gives_its_own_run_back_and_scales_with_the_work(tmp_path):
    config = small(anchor_fraction=1.0)
    run = finished_run(tmp_path / "run", config)
    calibration = calibrate(run)
    assert (calibration.lengths.path, calibration.lengths.kept) == (20, 0.5)
    assert calibration.measured == {
        ("data", "all"): 100,
        ("eval", "all"): 40,
        ("ppo", "sampling"): 54,
        ("ppo", "log-probs"): 12,
        ("ppo", "updates"): 24,
        ("ppo", "validation"): 10,
    }
    shape = read_shape(config.base.model)

    def predicted(wanted):
        sums = dict.fromkeys(calibration.measured, 0.0)
        for work in round_work(wanted, shape, calibration.lengths):
            sums[part_of(work)] += calibration.seconds(work)
        return sums

    assert predicted(config) == pytest.approx(calibration.measured)
    twice = predicted(small(anchor_fraction=1.0, batches=12, epochs=6))
    assert twice["ppo", "sampling"] == pytest.approx(108)
    assert twice["ppo", "updates"] == pytest.approx(96)
    assert twice["data", "all"] == pytest.approx(100)


def test_a_calibration_without_the_part_is_refused(tmp_path, capsys):
    run = finished_run(tmp_path / "run", small(anchor_fraction=1.0))
    options = ["--config", "configs/micro.yaml", "--calibrate", str(run.root), "--gpu", "cpu", "--gpu-memory-gib", "4"]
    assert main(options) == 2
    assert "measured no 'all' in stage prm" in capsys.readouterr().err
    assert main([*options, "ppo.anchor_fraction=1"]) == 0
    assert "measured in" in capsys.readouterr().out


def test_operations_are_summed_by_the_part_that_is_measured():
    works = [
        Work("ppo", "updates", "train", 1, 3),
        Work("ppo", "critic", "train", 1, 4),
        Work("prm", "head", "forward", 1, 5),
    ]
    assert operations_by_part(works) == {("ppo", "updates"): 7, ("prm", "all"): 5}


def test_the_command_prints_memory_hours_money_and_the_published_case(capsys):
    assert main(["--config", "configs/tiny.yaml", "--gpu-memory-gib", "1.4", "--price", "2"]) == 0
    out = capsys.readouterr().out
    for text in ("864,640 weights", "optimiser", "reference", "PRM", "KV cache", "does NOT fit", "GPU-hours", "EUR"):
        assert text in out
    assert "at least 4 x 80 GB and takes 200 to 400 GPU-hours" in out
    assert main(["--config", "configs/tiny.yaml", "--gpu-memory-gib", "24"]) == 0
    out = capsys.readouterr().out
    assert "It fits." in out
    assert "EUR" not in out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--gpus 0", "--gpus 0"),
        ("--gpus 5", "ppo.problems"),
        ("--gpu-memory-gib 0", "--gpu-memory-gib 0"),
        ("--gpu-memory-gib nan", "--gpu-memory-gib nan"),
        ("--price -1", "--price -1"),
        ("--price inf", "--price inf"),
        ("--utilisation 1.5", "--utilisation 1.5"),
        ("--vllm-share 1", "--vllm-share 1"),
        ("--path-tokens 1000", "data.max_new_tokens"),
        ("--prompt-tokens 0", "--prompt-tokens 0"),
        ("--zero 1", "nothing to divide"),
        ("--gpus 2 --offload optimiser", "--offload optimiser needs --zero"),
        ("--gpus 2 --zero 2 --offload all", "only ZeRO-3"),
        ("--gpus 2 --zero 3 lora.rank=8", "lora.rank"),
        ("--gpus 2 --zero 3 ppo.frozen_layers=1", "ppo.frozen_layers"),
        ("--gpus 2 --zero 1 ppo.baseline=gae", "ppo.baseline"),
        ("--gpus 2 --zero 3 ppo.engine=vllm", "ppo.engine"),
        ("--gpu cpu", "--calibrate"),
        ("--calibrate runs/none", "--gpu cpu"),
        ("--gpu cpu --calibrate runs/none", "--gpu-memory-gib"),
        ("--gpu h100 --utilisation 0.4 --calibrate runs/none", "--utilisation"),
        ("--gpu cpu --calibrate runs/none --gpu-memory-gib 4", "make eval"),
        ("base.model=no/such/model", "base.model"),
        ("ppo.problemz=3", "ppo.problems"),
    ],
)
def test_contradictions_are_one_line_that_names_the_setting(options, named, capsys):
    assert main(["--config", "configs/tiny.yaml", *options.split()]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def test_an_engine_beside_the_trainer_has_the_share_of_the_configuration(capsys):
    assert main(["--config", "configs/tiny.yaml", "ppo.engine=vllm", "ppo.vllm_memory=0.25"]) == 0
    configured = capsys.readouterr().out
    assert main(["--config", "configs/tiny.yaml", "--vllm-share", "0.25"]) == 0
    assert "vLLM" in configured
    assert configured == capsys.readouterr().out


def test_groups_of_paths_do_not_span_devices(capsys):
    divided = ["ppo.problems=6", "ppo.paths=8", "ppo.micro_batch=6", "ppo.minibatches=2"]
    assert main(["--gpus", "4", *divided]) == 2
    assert "--gpus 4 with ppo.problems = 6" in capsys.readouterr().err
    assert main(["--gpus", "2", "--gpu-memory-gib", "24", *divided]) == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model_type": "t5"}', '{"model_type": "llama", "num_attention_heads": 0}', "\x00{"]
)
def test_a_bad_model_configuration_is_one_line(tmp_path, capsys, text):
    (tmp_path / "config.json").write_text(text)
    assert main(["--config", "configs/tiny.yaml", f"base.model={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert "base.model" in error
    assert error.count("\n") == 1
