"""Hooks of the site (mkdocs.yml): pages made from files outside docs/, and links for ``docs/x.md`` in running text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("common", "grading", "data_gen", "prm", "policy", "eval", "pipeline", "math_env")
MENTION = re.compile(r"(?<![\w/.])docs/([a-z_]+(?:/[a-z_]+)?\.md)\b")
CODE = re.compile(r"(^```.*?^```|^(?: {4}|\t).*?$|`[^`\n]*`|\[[^\]\n]*\]\([^)\n]*\))", re.DOTALL | re.MULTILINE)
"""What no link is put into: code in fences, indented or inline, and links."""


def on_config(config: Any) -> Any:
    """Pages that mkdocs.yml does not name stand at the end of a group: a new page needs no line there."""
    pages = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    config["nav"] = with_rest(config["nav"], pages)
    return config


def with_rest(nav: list[dict[str, Any]], pages: Iterable[str]) -> list[dict[str, Any]]:
    """``nav`` with the pages it lacks: those of results/ behind "Results", all others behind "How to"."""
    named = set(re.findall(r"[\w/]+\.md\b", json.dumps(nav)))
    rest = [page for page in pages if page not in named]
    more = {
        "Results": [page for page in rest if page.startswith("results/")],
        "How to": [page for page in rest if not page.startswith("results/")],
    }
    return [{title: [*value, *more[title]] if title in more else value for title, value in one.items()} for one in nav]


def on_files(files: Any, config: Any) -> Any:
    """Add home, log, results and reference; their source is elsewhere in the repository."""
    from mkdocs.structure.files import File  # the rest of this file is used without mkdocs, too

    pages = {"index.md": _text("README.md"), "log.md": _text("LOG.md"), "results/index.md": results_page()}
    pages |= {f"reference/{name}.md": reference_page(name) for name in PACKAGES}
    pages["reference/index.md"] = reference_index()
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Turn ``docs/x.md`` in running text, which is how the pages name each other, into a link."""
    known = {file.src_uri for file in files.documentation_pages()}
    here = page.file.src_uri
    return linked(markdown, known, depth=here.count("/"))


def linked(markdown: str, known: set[str], depth: int = 0) -> str:
    """``markdown`` with a link for every mention of a page in ``known``, from a page ``depth`` folders deep."""

    def link(found: re.Match[str]) -> str:
        uri = found[1]
        return f"[{found[0]}]({'../' * depth}{uri})" if uri in known else found[0]

    parts = CODE.split(markdown)
    return "".join(part if index % 2 else MENTION.sub(link, part) for index, part in enumerate(parts))


def modules(package: str) -> list[str]:
    """Dotted names of a package's modules that say in a docstring what they are for, in alphabetical order."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__" and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))):
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def reference_page(package: str) -> str:
    return f"# {package}\n\n" + "\n".join(f"::: {name}\n" for name in modules(package))


def reference_index() -> str:
    """One line a module: the first sentence of its docstring."""
    lines = ["# Reference", "", "Generated from the docstrings. Imports run from the first package to the last.", ""]
    for package in PACKAGES:
        lines += ["", f"## [{package}]({package}.md)", "", "| module | what it is for |", "|---|---|"]
        for name in modules(package):
            path = ROOT / Path(*name.split("."))
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            said = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
            said = " ".join(said.split()).replace("|", "\\|")
            lines.append(f"| [`{name}`]({package}.md#{name}) | {said} |")
    return "\n".join(lines) + "\n"


def results_page() -> str:
    """Every row of docs/results/runs.jsonl as a line of a table."""
    rows = [json.loads(line) for line in _text("docs/results/runs.jsonl").splitlines() if line.strip()]
    lines = [
        "# Runs",
        "",
        "Percent of test problems with 95 % intervals; differences in points, paired. From `docs/results/runs.jsonl`,"
        " which holds more figures of each run.",
        "",
        "| configuration | seed | round | greedy | difference | sampled | difference | best of 8 by PRM | PRM F1 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        policy, gain = row["policy"], row["difference"]
        cells = [f"`{row['config']}`", row["seed"], row["round"]]
        for name in ("pass1_greedy", "pass1_sampled"):
            cells += [percent(policy[name]), percent(gain[name], sign="+")]
        cells += [percent(policy["prm_best8"]), f"{row['prm_first_error_f1']['value']:.2f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def percent(figure: dict[str, Any], sign: str = "") -> str:
    low, high = figure["ci95"]
    return f"{100 * figure['value']:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
