"""The site's hooks, and that its pages name each other rightly; it is built where mkdocs is installed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", PROJECT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_that_is_named_exists():
    listed = set(re.findall(r"[\w/-]+\.md\b", (PROJECT / "mkdocs.yml").read_text()))
    made = {"index.md", "log.md", "results/index.md"} | {name for name in listed if name.startswith("reference/")}
    pages = {str(page.relative_to(PROJECT / "docs")) for page in (PROJECT / "docs").rglob("*.md")}
    assert made < listed <= pages | made
    for page in [*(PROJECT / "docs").rglob("*.md"), PROJECT / "README.md"]:
        for name in re.findall(r"\bdocs/([a-z_/-]+\.md)\b", page.read_text(encoding="utf-8")):
            assert name in pages, f"{page.name} names docs/{name}"


def test_a_page_that_the_navigation_does_not_name_is_added(hooks):
    nav = [{"Start": "index.md"}, {"How to": [{"Models": "models.md"}]}, {"Results": [{"Runs": "results/index.md"}]}]
    found = hooks.with_rest(nav, ["models.md", "new.md", "results/ablation.md"])
    assert found == [
        {"Start": "index.md"},
        {"How to": [{"Models": "models.md"}, "new.md"]},
        {"Results": [{"Runs": "results/index.md"}, "results/ablation.md"]},
    ]


@pytest.mark.parametrize(
    ("text", "depth", "wanted"),
    [
        ("See docs/report.md.", 0, "See [docs/report.md](report.md)."),
        ("(docs/results/a.md), next", 1, "([docs/results/a.md](../results/a.md)), next"),
        ("docs/none.md stays, `docs/report.md` and [docs/report.md](x.md) too", 0, None),
        ("```\ncat docs/report.md\n```\n\n    less docs/report.md\n", 0, None),
    ],
)
def test_pages_named_in_running_text_become_links(hooks, text, depth, wanted):
    assert hooks.linked(text, {"report.md", "results/a.md"}, depth) == (wanted or text)


def test_pages_made_from_code_and_results(hooks):
    rows = (PROJECT / "docs" / "results" / "runs.jsonl").read_text().splitlines()
    first = json.loads(rows[0])
    page = hooks.results_page()
    assert page.count("| `configs/") == len(rows) > 3
    assert f"{100 * first['policy']['pass1_greedy']['value']:.1f} [" in page
    names = hooks.modules("policy")
    assert "policy.advantages" in names
    assert "policy.__main__" not in names
    assert hooks.reference_page("policy").count("::: policy.") == len(names) > 20
    row = "| [`common.metrics`](common.md#common.metrics) | Pure metrics shared by every stage"
    assert row in hooks.reference_index()


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (the extra 'docs')")
def test_the_site_is_built_strictly_and_needs_no_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=.https?:[^>]*>", page.read_text()), page.name
    assert (tmp_path / "search" / "search_index.js").is_file()
