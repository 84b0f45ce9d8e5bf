"""Imports run one way, shipped configurations load, and pure modules stay pure."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from common.config import load_config

PROJECT = Path(__file__).parent.parent
ORDER = ["common", "math_env", "grading", "data_gen", "prm", "policy", "eval", "pipeline"]
PURE = [
    "common/metrics.py",
    "common/signal_settings.py",
    "math_env/contest.py",
    "math_env/drafts.py",
    "math_env/families.py",
    "math_env/kernel.py",
    "math_env/problems.py",
    "math_env/rules.py",
    "math_env/search.py",
    "math_env/terms.py",
    "math_env/tokens.py",
    "data_gen/label_quality.py",
    "data_gen/labels.py",
    "data_gen/math_shepherd.py",
    "data_gen/prm800k.py",
    "data_gen/stepwise.py",
    "common/quality_settings.py",
    "data_gen/grounding.py",
    "policy/quality.py",
    "prm/quality/coherence.py",
    "prm/quality/derivation.py",
    "prm/quality/measures.py",
    "prm/credit.py",
    "prm/attacks.py",
    "prm/objective.py",
    "policy/attack_mined.py",
    "policy/attack_patterns.py",
    "policy/attack_rewards.py",
    "policy/attack_teach.py",
    "policy/rewards.py",
    "policy/signals.py",
    "policy/signal_batch.py",
    "policy/advantages.py",
    "policy/curriculum.py",
    "policy/gae.py",
    "policy/objective.py",
    "policy/plan_memory.py",
]
IMPURE_MODULES = {
    "common.config",
    "common.runs",
    "logging",
    "tqdm",
    "pathlib",
    "os",
    "sys",
    "omegaconf",
    "transformers",
}
CONFIGS = sorted((PROJECT / "configs").glob("*.yaml"))


def imported_modules(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules.add(node.module)
    return modules


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_only_to_earlier_packages(package):
    later = set(ORDER[ORDER.index(package) + 1 :]) | {"bench", "tests"}
    files = list((PROJECT / package).rglob("*.py"))
    assert files
    wrong = {
        f"{path.relative_to(PROJECT)} imports {module}"
        for path in files
        for module in imported_modules(path)
        if module.split(".")[0] in later
    }
    assert not wrong


def test_nothing_but_the_bench_and_tests_uses_the_environment_and_it_uses_only_common():
    own = {module for path in (PROJECT / "math_env").glob("*.py") for module in imported_modules(path)}
    assert {module.split(".")[0] for module in own} & set(ORDER) == {"common", "math_env"}
    for package in set(ORDER) - {"math_env"}:
        for path in (PROJECT / package).rglob("*.py"):
            assert not any(module.split(".")[0] == "math_env" for module in imported_modules(path))


def test_the_kernel_rests_on_exact_arithmetic_alone():
    """No solver, computer algebra, parser, clock or random number can decide what a theorem is."""
    allowed = {
        "__future__",
        "collections.abc",
        "fractions",
        "functools",
        "math",
        "math_env",
        "math_env.terms",
        "typing",
    }
    assert imported_modules(PROJECT / "math_env/kernel.py") <= allowed
    assert imported_modules(PROJECT / "math_env/terms.py") <= allowed | {"weakref"}


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_import_no_io_config_or_logging(name):
    assert not imported_modules(PROJECT / name) & IMPURE_MODULES


def test_there_are_shipped_configurations():
    assert {"micro", "tiny", "evidence", "published", "curriculum", "sympy-rlvr-0.5b"} <= {
        path.stem for path in CONFIGS
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_configuration_loads(path):
    assert load_config(path).ppo.kl_coef > 0


def test_the_answer_checker_needs_sympy_alone():
    """``python -m grading`` is of use where neither the configuration nor torch is installed."""
    heavy = ["omegaconf", "pydantic", "torch", "transformers", "datasets", "trl"]
    code = f"import sys, grading.__main__; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
