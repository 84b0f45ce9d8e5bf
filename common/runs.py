"""The run folder: every path is spelled here, and a stage is finished when its ``DONE`` file exists.

runs/<name>/round-<k>/{1_sample,2_label,3_prm,4_ppo,5_eval}/  config.json code.diff metrics.jsonl <payload> DONE
runs/<name>/round-0/0_sft/                                    the same, of a run with a supervised start
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from common.errors import InputError
from common.files import first_damaged, payload_sums, write_atomic, write_lines

if TYPE_CHECKING:  # the row functions serve grading too, which needs SymPy alone
    from common.config import Config

STAGE_FOLDERS = {"sample": "1_sample", "label": "2_label", "prm": "3_prm", "ppo": "4_ppo", "eval": "5_eval"}
"""The stages that every round has."""
ALL_FOLDERS = {"sft": "0_sft", **STAGE_FOLDERS}
OPTIONAL_STAGES = ("sft",)
"""Stages that a run has only when its configuration asks for them."""
STAGE_COMMAND = {"sft": "sft", "sample": "data", "label": "data", "prm": "prm", "ppo": "ppo", "eval": "eval"}
STAGE_SECTIONS = {
    "sft": ("base", "lora", "data", "sft"),
    "sample": ("base", "data", "sft"),
    "label": ("base", "data", "sft"),
    "prm": ("base", "lora", "data", "sft", "prm", "rounds"),
    "ppo": ("base", "lora", "data", "sft", "prm", "ppo", "curriculum", "rounds"),
    "eval": ("base", "lora", "data", "sft", "prm", "ppo", "curriculum", "eval", "rounds"),
}
OPTIONAL_SECTIONS = ("sft", "curriculum")
"""Sections that a stage does not depend on while they are off, so that folders made before they existed go on."""
UNCHECKED = {"rounds.count", "base.threads", "data.max_batch_rows", "data.workers", "prm.max_batch_tokens", "report_to"}
UNCHECKED |= {"data.cluster"}
UNCHECKED |= {"base.separator", "base.answer_format"}
UNCHECKED |= {"ppo.blackboxes", "ppo.blackbox_kl", "ppo.blackbox_gb", "ppo.max_attack_wins"}
"""Keys that may change between two runs of a stage: they do not change what it computes."""

SUMS = "sha256"
"""Key of ``DONE``: {relative path: SHA-256} of what later stages read."""

Record = TypeVar("Record")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines atomically; one row is held at a time."""
    write_lines(path, (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read JSON Lines.

    Raises:
        InputError: the file is missing, or a row is not a JSON object (file and row are named).
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with path.open(encoding="utf-8") as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                yield _row(path, number, line)


def read_rows_at(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """``read_rows``, each row with the byte at which its line starts, for ``handle.seek``."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    start = 0
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                yield start, _row(path, number, line.decode("utf-8"))
            start += len(line)


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, row {number}: not JSON ({error.msg}), want one JSON object a line") from error
    if not isinstance(row, dict):
        raise InputError(f"{path}, row {number}: a {type(row).__name__}, want a JSON object")
    return row


def read_records(path: Path, from_row: Callable[[Mapping[str, Any]], Record]) -> list[Record]:
    """Read JSON Lines into records; a row that does not fit is named with its number."""
    records = []
    for number, row in enumerate(read_rows(path), 1):
        try:
            records.append(from_row(row))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}, row {number}: {type(error).__name__}: {error}") from error
    return records


_intact: set[tuple[Path, int]] = set()
"""Finished stages whose payload this process has compared with its checksums, and when they were finished."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run folder at one round."""

    root: Path
    round: int = 0

    @property
    def folder(self) -> Path:
        return self.root / f"round-{self.round}"

    def stage(self, name: str) -> StageFolder:
        return StageFolder(self.folder / ALL_FOLDERS[name], name)

    def at(self, round_index: int) -> Run:
        return Run(self.root, round_index)

    def start_model(self, config: Config, *, before_sft: bool = False) -> str:
        """The model this round starts from: the policy of the round before, or in round 0 the base model or, where
        section ``sft`` is on, the model fine-tuned from it.

        Args:
            before_sft: True = the base model also where ``sft`` is on.

        Raises:
            InputError: the round before has no finished policy, or round 0 no finished supervised start.
        """
        if self.round:
            return str(self.at(self.round - 1).require("ppo").file("policy"))
        return str(self.require("sft").file("policy")) if config.sft.is_on and not before_sft else config.base.model

    def require(self, name: str) -> StageFolder:
        """Return a finished earlier stage.

        Raises:
            InputError: it is not finished, or what it wrote was damaged since; the message holds the command that
                makes it.
        """
        stage = self.stage(name)
        more = f" ROUND={self.round}" if self.round else ""
        if not stage.is_done:
            raise InputError(f"{stage.path}: not finished; run: make {STAGE_COMMAND[name]} RUN={self.root}{more}")
        finished = (stage.path, stage.file("DONE").stat().st_mtime_ns)
        if finished not in _intact:  # a stage asks several times; large weights are read once
            if reason := stage.damage():
                raise InputError(
                    f"{stage.path}: {reason}; to make it again, run: make {STAGE_COMMAND[name]} RUN={self.root}{more}"
                )
            _intact.add(finished)
        return stage


@dataclasses.dataclass(frozen=True)
class StageFolder:
    """The folder of one stage: its payload, its configuration and its ``DONE`` mark."""

    path: Path
    name: str

    def file(self, name: str) -> Path:
        return self.path / name

    @property
    def is_done(self) -> bool:
        return self.file("DONE").is_file()

    @property
    def summary(self) -> dict[str, Any]:
        """What the stage wrote when it finished, seconds included."""
        return json.loads(self.file("DONE").read_text(encoding="utf-8"))

    def damage(self) -> str | None:
        """What is wrong with a finished stage: its first payload file that is gone or not as written; None when
        nothing is, or when it was finished without checksums.
        """
        try:
            sums = self.summary.get(SUMS, {})
        except ValueError as error:
            return f"DONE cannot be read ({type(error).__name__})"
        return first_damaged(self.path, sums)

    def say(self, line: str) -> None:
        """Print what a resumed stage goes on from, or what it does not trust; also kept in ``continued.log``."""
        print(f"{STAGE_COMMAND[self.name]}: {line}", flush=True)
        if self.path.is_dir():
            with self.file("continued.log").open("a", encoding="utf-8") as handle:
                handle.write(f"{datetime.datetime.now().isoformat(timespec='seconds')} {self.name}: {line}\n")

    def begin(self, config: Config) -> StageTimer:
        """Create or reopen the folder; a run whose configuration changed is refused by key.

        A finished stage whose payload was damaged is unfinished again, and says so.

        Raises:
            InputError: the folder was made with another value of a key that matters to this stage.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        wanted = stage_config(config, self.name)
        saved_path = self.file("config.json")
        if saved_path.is_file():
            saved = _read_object(saved_path)
            for key in sorted(saved.keys() | wanted.keys()):
                if key not in UNCHECKED and saved.get(key) != wanted.get(key):
                    raise InputError(
                        f"{saved_path}: this folder was made with {key} = {saved.get(key)!r}, now it is"
                        f" {wanted.get(key)!r}; use another RUN, or delete {self.path}"
                    )
        else:
            write_atomic(self.file("code.diff"), code_state())
            write_atomic(saved_path, json.dumps(wanted, indent=1, ensure_ascii=False))
        if self.is_done and (reason := self.damage()):
            self.say(f"{self.path} was finished, but {reason}: it is made again")
            self.file("DONE").unlink(missing_ok=True)  # another rank may have been first
        return StageTimer.start(self)

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one row of metrics; the file is a log and may end in the middle of a row after a kill."""
        with self.file("metrics.jsonl").open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The logged rows; a last row cut by a kill is left out, any other unreadable one too, and said."""
        path = self.file("metrics.jsonl")
        rows, unreadable = [], []
        lines = path.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n") if path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                rows += [json.loads(line)] if line else []
            except json.JSONDecodeError:
                unreadable.append(number)
        if unreadable and unreadable != [len(lines)]:
            print(f"{path}: row(s) {', '.join(map(str, unreadable))} cannot be read and are left out")
        return rows


@dataclasses.dataclass
class StageTimer:
    """Seconds a stage took, summed over interrupted runs; of work that a kill undid only what ``save`` had noted."""

    stage: StageFolder
    before: float
    started: float

    @classmethod
    def start(cls, stage: StageFolder) -> Self:
        path = stage.file("elapsed.json")
        before = float(_read_object(path)["seconds"]) if path.is_file() else 0.0
        return cls(stage, before, time.perf_counter())

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.started

    def save(self) -> None:
        """Note the seconds so far; called wherever the stage saves what a resumed run goes on from."""
        write_atomic(self.stage.file("elapsed.json"), json.dumps({"seconds": self.seconds}))

    def finish(self, *payload: str, **summary: Any) -> None:
        """Write ``DONE`` last, by rename, with the stage's summary, its seconds and the checksums of its payload.

        Args:
            payload: files and folders that later stages read.
        """
        self.save()
        row = {"seconds": round(self.seconds, 2), **summary, SUMS: payload_sums(self.stage.path, payload)}
        write_atomic(self.stage.file("DONE"), json.dumps(row, indent=1, ensure_ascii=False, allow_nan=False))


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object that this module wrote; raises InputError naming the file when it was damaged since."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: damaged ({type(error).__name__}); delete it and run again") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: damaged (a {type(value).__name__}); delete it and run again")
    return value


def stage_config(config: Config, stage: str) -> dict[str, Any]:
    """Flat ``section.key`` view of what a stage depends on."""
    tree = config.model_dump(mode="json")
    flat: dict[str, Any] = {"seed": tree["seed"]}
    for section in STAGE_SECTIONS[stage]:
        if section in OPTIONAL_SECTIONS and not getattr(config, section).is_on:
            continue
        flat |= {f"{section}.{key}": value for key, value in tree[section].items()}
    return flat


def code_state() -> str:
    """Commit and uncommitted difference of the code that runs; says so where there is no git checkout."""
    here = Path(__file__).parent.parent
    try:
        git = ["git", "-C", str(here)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=20, check=True)
        diff = subprocess.run([*git, "diff", "HEAD"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no git checkout: {type(error).__name__}\n"
    return f"commit {commit.stdout.strip()}\n{diff.stdout}"
