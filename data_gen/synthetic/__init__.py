"""Synthetic problems with worked solutions, human-like wrong habits, and an exact step oracle (docs/generator.md)."""

from data_gen.synthetic.corpus import LEVELS, SPLITS, completion, generate, split_of
from data_gen.synthetic.habits import CATALOGUE, Habit
from data_gen.synthetic.oracle import KINDS, Solution, StepJudgement, judge, solve

__all__ = [
    "CATALOGUE",
    "KINDS",
    "LEVELS",
    "SPLITS",
    "Habit",
    "Solution",
    "StepJudgement",
    "completion",
    "generate",
    "judge",
    "solve",
    "split_of",
]
