"""``python -m bench.quality``: does each measure of quality tell intact solutions from corrupted ones?

JSON Lines to standard output: for each source, measure and corruption the area under the ROC curve (P(an intact text
scores above a corrupted one), ties half, all texts pooled) with a 95 % bootstrap interval over texts, and the share of
texts that score above their OWN corruption (ties half). Sources: the built-in generator with the base as language
model, and files of solutions people have written (docs/quality.md).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.quality_texts import CORRUPTIONS, MEANT, Text, built_in, from_file, with_usual
from common.errors import InputError
from common.models import load_policy, load_tokenizer, locate
from common.quality_settings import MEASURES
from prm.quality.coherence import coherence, neighbour_gains
from prm.quality.measures import deriving_steps, quality_of

RESAMPLES = 500


class Judge:
    """The five measures of texts; coherence only with a language model."""

    def __init__(self, model: str | None, max_pairs: int) -> None:
        self.model = None if model is None else load_policy(model)
        self.tokenizer = None if model is None else load_tokenizer(model)
        self.max_pairs = max_pairs

    def values(self, texts: Sequence[Text], steps: Sequence[Sequence[str]]) -> dict[str, list[float | None]]:
        """Return each measure of the problem of text i solved by steps i."""
        coherences = self._coherences(texts, steps)
        found = [
            quality_of(text.problem, own, text.answer, usual=text.usual, coherence=value)
            for text, own, value in zip(texts, steps, coherences, strict=True)
        ]
        return {name: [quality.value(name) for quality in found] for name in MEASURES}

    def _coherences(self, texts: Sequence[Text], steps: Sequence[Sequence[str]]) -> list[float | None]:
        if self.model is None or self.tokenizer is None:
            return [None] * len(texts)

        def ids(text: str) -> list[int]:
            return list(self.tokenizer(text + "\n", add_special_tokens=False)["input_ids"])  # type: ignore[misc]

        gains = neighbour_gains(
            self.model,
            [ids(text.problem) for text in texts],
            [[ids(step) for step in own] for own in steps],
            max_pairs=self.max_pairs,
            max_batch_tokens=4096,
        )
        return [coherence(one) for one in gains]


def figures(source: str, judge: Judge, texts: Sequence[Text], corruptions: Sequence[str], seed: int) -> list[dict]:
    """One row a measure and corruption: those it is meant for, and the others as a check of what it leaves alone."""
    intact = judge.values(texts, [text.steps for text in texts])
    rows = []
    for corruption in corruptions:
        rng = random.Random(f"{seed}|{corruption}")
        changed = [(k, steps) for k, text in enumerate(texts) if (steps := CORRUPTIONS[corruption](text, rng))]
        if not changed:
            continue
        broken = judge.values([texts[k] for k, _ in changed], [steps for _, steps in changed])
        for name in MEASURES:
            pairs = [
                (intact[name][k], broken[name][j])
                for j, (k, _) in enumerate(changed)
                if intact[name][k] is not None and broken[name][j] is not None
            ]
            if pairs:
                row = {"source": source, "measure": name, "corruption": corruption, "n": len(pairs)}
                rows.append(row | {"meant": corruption in MEANT[name]} | _figures(np.array(pairs, float), seed))
    return rows


def _figures(pairs: np.ndarray, seed: int) -> dict[str, object]:
    def area(rows: np.ndarray) -> float:
        below, above = (np.searchsorted(np.sort(rows[:, 1]), rows[:, 0], side=side) for side in ("left", "right"))
        return float((below + above).mean() / 2 / len(rows))

    rng = np.random.default_rng(seed)
    drawn = [area(pairs[rng.integers(len(pairs), size=len(pairs))]) for _ in range(RESAMPLES)]
    own = np.mean((pairs[:, 0] > pairs[:, 1]) + 0.5 * (pairs[:, 0] == pairs[:, 1]))
    return {
        "auc": round(area(pairs), 3),
        "ci95": [round(float(end), 3) for end in np.quantile(drawn, [0.025, 0.975])],
        "own": round(float(own), 3),
        "intact": round(float(pairs[:, 0].mean()), 3),
        "corrupted": round(float(pairs[:, 1].mean()), 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="solutions people wrote, JSON Lines; none: the generator")
    parser.add_argument("--pools", nargs="*", type=Path, default=[], help="samples of the same problems: usual steps")
    parser.add_argument("--model", default=None, help="language model of coherence; generator: the base; files: none")
    parser.add_argument("--texts", type=int, default=200, help="texts a source")
    parser.add_argument("--pairs", type=int, default=8, help="neighbouring steps of a text that coherence looks at")
    parser.add_argument("--split", default="test", help="split of the generator")
    parser.add_argument("--seed", type=int, default=0, help="draws problems and corruptions")
    parser.add_argument("--only", nargs="*", choices=sorted(CORRUPTIONS), default=list(CORRUPTIONS))
    options = parser.parse_args(argv)
    try:
        if options.files:
            read = {path: from_file(path, options.texts, options.seed) for path in options.files}
            sources = {
                f"{path.parent.name}/{path.stem}": with_usual(texts, options.pools, deriving_steps)
                for path, texts in read.items()
            }
        else:
            levels = list(range(3, 9))
            sources = {"generator": built_in(options.split, options.seed, options.texts, levels, deriving_steps)}
        model = options.model or (None if options.files else locate("data_gen/base_model"))
        judge = Judge(model, options.pairs)
        for source, texts in sources.items():
            for row in figures(source, judge, texts, options.only, options.seed):
                print(json.dumps(row), flush=True)
    except InputError as error:
        print(f"quality: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
