"""``make attack`` on a run folder: report, refusal of ppo, hardening and taking."""

import json

import pytest
from attack_toys import TOKENIZER, attack_run

from common.cli import stage_main
from common.config import load_config
from common.errors import InputError
from common.models import PROJECT, weights_hash
from common.runs import Run
from policy.attack import main
from policy.attack_cases import load_cases
from policy.attack_report import check_attacks
from policy.harden import attack_inputs, take
from policy.train import train_stage
from prm.attacks import FAMILIES, HARDENING, UNTAUGHT
from prm.model import load_prm

CONFIG = str(PROJECT / "configs" / "micro.yaml")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A run whose PRM was attacked, and the overrides of its commands; tests put back what they change."""
    run, overrides = attack_run(tmp_path_factory.mktemp("attacked"))
    assert main(["--config", CONFIG, "--run", str(run.root), "--problems", "4", *overrides]) == 0
    return run, overrides


def read(run: Run, name: str) -> dict:
    return json.loads(run.stage("prm").file(name).read_text())


def hash_of(run: Run, folder: str = "prm") -> str:
    return weights_hash(load_prm(run.stage("prm").file(folder))[0])


def test_report_of_a_run(attacked, capsys):
    run, overrides = attacked
    assert main(["--config", CONFIG, "--run", str(run.root), "--problems", "4", *overrides]) == 0
    lines = capsys.readouterr().out.splitlines()
    row, report = json.loads(lines[-1]), read(run, "attacks.json")
    assert row["problems"] == report["cases"] == 4
    assert row["win_share"] == report["win_share"] == report["wins"]["trained"]["configured"]["all"]["share"]
    assert report["prm_hash"] == hash_of(run)
    assert list(report["wins"]) == ["trained", "reward"]
    assert list(report["wins"]["reward"]) == ["configured", "sum", "mean", "min", "softmin", "delta"]
    assert list(report["wins"]["reward"]["sum"]) == [*FAMILIES, "all"]
    assert any("invented_theorem *" in line for line in lines)


def test_ppo_refuses_a_prm_that_is_fooled(attacked, capsys):
    run, overrides = attacked
    config = load_config(CONFIG, [*overrides, "ppo.max_attack_wins=0.2"])
    path, prm = run.stage("prm").file("attacks.json"), hash_of(run)
    before = path.read_text()
    row = json.loads(before)
    try:
        path.write_text(json.dumps(row | {"win_share": 0.2}))
        check_attacks(config, run, prm)
        assert capsys.readouterr().out == ""
        path.write_text(json.dumps(row | {"win_share": 0.21}))
        with pytest.raises(InputError, match=r"attacks win 0\.210 .* ppo\.max_attack_wins = 0\.2"):
            check_attacks(config, run, prm)
        check_attacks(load_config(CONFIG, [*overrides, "ppo.max_attack_wins=null"]), run, prm)
        assert capsys.readouterr().out == ""
        check_attacks(config, run, "another")
        assert "of another PRM" in capsys.readouterr().out
        command = ["--config", CONFIG, "--run", str(run.root), *overrides]
        assert stage_main("policy", "", ("ppo",), train_stage, [*command, "ppo.max_attack_wins=0.2"]) == 2
        assert "attacks win 0.210" in capsys.readouterr().err
        assert stage_main("policy", "", ("ppo",), train_stage, [*command, "ppo.max_attack_wins=null"]) == 2
        assert "0 of 8 problems have a pass rate" in capsys.readouterr().err  # it went on to what comes next
        assert not run.stage("ppo").path.exists()
        path.write_text("{}")
        with pytest.raises(InputError, match="no attack report"):
            check_attacks(config, run, prm)
        path.unlink()
        check_attacks(config, run, prm)
        assert "was not attacked" in capsys.readouterr().out
    finally:
        path.write_text(before)


def test_attacks_are_taught_from_the_hardening_families_only(attacked):
    run, overrides = attacked
    config = load_config(CONFIG, overrides)
    cases = load_cases(config, run, TOKENIZER)
    inputs = attack_inputs(config, cases[:2], TOKENIZER)
    assert {one.problem_id for one in inputs} == {case.problem.id for case in cases[:2]}
    assert len(inputs) == 2 * len(HARDENING)
    labels = [one.labels for one in inputs]
    assert labels.count((0.0, 0.0)) == 4  # wrong steps, invented theorems
    assert labels.count((1.0, 0.0, 1.0, 0.0)) == 2  # full stops between true steps; no padding, which is not taught
    with pytest.raises(InputError, match="no problem is left"):
        attack_inputs(config, [], TOKENIZER)


def test_hardening_is_measured_and_taken_only_when_asked(tmp_path, capsys):
    run, overrides = attack_run(tmp_path)
    command = ["--config", CONFIG, "--run", str(run.root), "--problems", "3", *overrides]
    plain = hash_of(run)
    assert main([*command, "--take"]) == 2
    assert "no hardened PRM" in capsys.readouterr().err
    assert main([*command, "--harden"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    record, report = read(run, "harden.json"), read(run, "attacks.json")
    assert hash_of(run) == plain == report["prm_hash"] != hash_of(run, "hardened") == record["after"]["prm_hash"]
    assert (tuple(record["taught"]), tuple(record["untaught"])) == (HARDENING, UNTAUGHT)
    configured = report["wins"]["trained"]["configured"]
    wins, of = (sum(configured[family][key] for family in UNTAUGHT) for key in ("wins", "of"))
    assert row["untaught_trained_before"] == wins / of
    assert 0 <= row["f1_after"] <= 1
    hardened = hash_of(run, "hardened")
    assert take(Run(run.root)) == {"taken": True}
    assert (hash_of(run), hash_of(run, "unhardened")) == (hardened, plain)
    assert read(run, "attacks.json")["prm_hash"] == hardened
    assert (run.stage("prm").summary["first_error_f1"], run.stage("prm").summary["hardened"]) == (row["f1_after"], True)
    run.stage("prm").file("prm").rename(run.stage("prm").file("hardened"))  # killed between the two renames
    assert main([*command, "--take"]) == 0
    assert (hash_of(run), hash_of(run, "unhardened")) == (hardened, plain)
    run.stage("ppo").path.mkdir()
    run.stage("ppo").file("config.json").write_text("{}")
    with pytest.raises(InputError, match="ppo has begun"):
        take(run)
