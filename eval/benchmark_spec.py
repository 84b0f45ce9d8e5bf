"""The registry of benchmarks: ``eval/benchmarks.yaml`` as checked records. What is written there is what is run."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.errors import InputError
from grading.settings import GradingSettings

REGISTRY = FilePath(__file__).with_name("benchmarks.yaml")
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
"""The sentence most published zero-shot figures were measured with (evaluation code of Qwen2.5-Math)."""


class Part(BaseModel):
    """Unknown keys are errors; nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Part):
    """Where the rows are on the hub, and how many problems belong there."""

    hub: str
    config: str | None
    split: str
    problems: Annotated[int, Field(ge=1)]


class Fields(Part):
    """Names of the fields of a row, tried in order, and how the gold answer is written.

    ``gold``: ``text``: the field is the answer; ``marker``: what stands behind ####; ``list``: a list of answers, all
    of them wanted, in any order; ``auto``: whichever of these the field looks like.
    """

    problem: tuple[str, ...]
    answer: tuple[str, ...]
    gold: Literal["text", "marker", "list", "auto"]
    context: tuple[str, ...] = ()
    tolerance: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()
    level: tuple[str, ...] = ()


class Shots(Part):
    """Where worked examples come from: the first rows of a split that is not measured, or of ``--shot-rows``."""

    problem: tuple[str, ...] = ("problem", "question")
    solution: tuple[str, ...] = ("solution",)
    hub: str | None = None
    config: str | None = None
    split: str = "train"


class Prompt(Part):
    """What is asked. ``{instruction}`` is left out, with the line it stands on, where worked examples show the form."""

    instruction: str = INSTRUCTION
    chat: str = "{problem}\n{instruction}"
    plain: str = "Question: {problem}\n{instruction}\nAnswer:"
    stop_chat: tuple[str, ...] = ()
    stop_plain: tuple[str, ...] = ("\nQuestion:",)


class Sampling(Part):
    """``samples`` paths a problem; temperature 0 is greedy; ``max_new_tokens`` in tokens."""

    samples: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    max_new_tokens: Annotated[int, Field(ge=1)]


class Benchmark(Part):
    """One entry of the registry."""

    name: str
    source: Source | None = None
    fields: Fields
    shots: Shots = Shots()
    prompt: Prompt = Prompt()
    sampling: Sampling
    grading: dict[str, Any] = {}

    @property
    def settings(self) -> GradingSettings:
        """The grading policy.

        Raises:
            InputError: a setting or value that grading does not know.
        """
        return grading_settings(self.grading)


def grading_settings(values: dict[str, Any]) -> GradingSettings:
    """Grading settings from names and values. Raises InputError for a name or value that does not exist."""
    unknown = sorted(set(values) - set(GradingSettings.__dataclass_fields__))
    if unknown:
        raise InputError(
            f"grading setting {unknown[0]!r}: want one of {', '.join(GradingSettings.__dataclass_fields__)}"
        )
    return GradingSettings(**values)


def load_registry(path: FilePath = REGISTRY) -> dict[str, Benchmark]:
    """Read the registry.

    Raises:
        InputError: not readable, or an entry that does not fit (its place is named).
    """
    try:
        tree: Any = OmegaConf.to_container(OmegaConf.load(path))
        entries = {name: Benchmark.model_validate({"name": name, **entry}) for name, entry in dict(tree).items()}
    except (OSError, OmegaConfBaseException, AttributeError, TypeError) as error:
        raise InputError(f"{path}: not a readable registry of benchmarks: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: {error.title} {where}: {first['msg']}, got {first['input']!r}") from error
    for entry in entries.values():
        _ = entry.settings
    return entries


def find_benchmark(wanted: str) -> Benchmark:
    """The entry of a name; an existing file gets the entry ``file``, named after the file.

    Raises:
        InputError: neither a benchmark nor a file.
    """
    registry = load_registry()
    if wanted in registry and wanted != "file":
        return registry[wanted]
    if FilePath(wanted).is_file():
        return registry["file"].model_copy(update={"name": FilePath(wanted).stem})
    names = ", ".join(name for name in registry if name != "file")
    raise InputError(f"--benchmark {wanted}: want {names}, or an existing JSON Lines file")
