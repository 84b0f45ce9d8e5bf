"""The command line of every stage: ``python -m <stage> --config … --run … [--round k] [section.key=value …]``."""

from __future__ import annotations

import argparse
import errno
import os
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from common.config import Config, describe, load_config
from common.errors import InputError, RunError
from common.runs import Run


def stage_parser(name: str, purpose: str, sections: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command on a run; ``--help`` explains every field of the sections."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=purpose,
        epilog="settings, with their defaults (override with section.key=value):\n" + describe(*sections),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_options(parser)
    return parser


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``read_options`` reads."""
    parser.add_argument("--config", default="configs/tiny.yaml", help="YAML file of the experiment")
    parser.add_argument("--run", default=None, help="run folder; default: runs/<name of the configuration>")
    parser.add_argument("--round", type=int, default=0, help="round, counted from 0")
    parser.add_argument("overrides", nargs="*", help="section.key=value, e.g. ppo.kl_coef=0.02")


def read_options(options: argparse.Namespace) -> tuple[Config, Run]:
    """Configuration and run that the options of ``add_run_options`` name.

    Raises:
        InputError: a negative round, or a configuration that does not load.
    """
    if options.round < 0:
        raise InputError(f"--round {options.round}: must be 0 or more")
    root = Path(options.run) if options.run else Path("runs") / Path(options.config).stem
    return load_config(options.config, options.overrides), Run(root, options.round)


def parse(name: str, purpose: str, sections: Sequence[str], argv: Sequence[str] | None) -> tuple[Config, Run]:
    """Parse a stage's command line."""
    return read_options(stage_parser(name, purpose, sections).parse_args(argv))


def seed_everything(config: Config) -> None:
    """Seed Python, NumPy and torch, set the number of torch threads, and keep libraries from printing."""
    import numpy as np
    import torch
    import transformers

    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    random.seed(config.seed)
    np.random.seed(config.seed)
    torch.manual_seed(config.seed)
    if config.base.threads:
        torch.set_num_threads(config.base.threads)


def stage_main(
    name: str,
    purpose: str,
    sections: Sequence[str],
    run_stage: Callable[[Config, Run], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Run one stage; what the user can mend is printed as one line with exit code 2, a run that came to nothing or ran
    out of disk space as one line with exit code 3.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        config, run = parse(name, purpose, sections, argv)
        seed_everything(config)
        run_stage(config, run)
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 3
    except Exception as error:
        if not is_disk_full(error):
            raise
        reason = " ".join(str(error).split())[:200]
        print(f"{name}: disk full ({reason}); free space and run again: the stage continues", file=sys.stderr)
        return 3
    return 0


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_WORDS = ("No space left on device", "os error 27", "os error 28", "inline_container.cc", "file write failed")
"""How safetensors and torch's writer, which raise no ``OSError``, say that a write failed."""


def is_disk_full(error: BaseException | None) -> bool:
    """True when an exception, or one that it came from, says that the disk, a quota or a file's limit is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(words in str(error) for words in FULL_WORDS) and "Reader" not in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def rows_main(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, work: Callable[[argparse.Namespace], None]
) -> int:
    """Add ``--input`` and ``--output`` (files of JSON Lines), parse and work; what the user can mend is printed as one
    line with exit code 2.
    """
    parser.add_argument("--input", type=Path, required=True, help="JSON Lines to read")
    parser.add_argument("--output", type=Path, required=True, help="JSON Lines to write")
    options = parser.parse_args(arguments)
    try:
        if not options.output.parent.is_dir():
            raise InputError(f"--output {options.output}: no folder {options.output.parent}")
        work(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
