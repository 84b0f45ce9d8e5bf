"""Word problems: which reader of ``synthesis_readers``, or which formula in the text's numbers in their order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from flint import fmpq, fmpz

from bench.synthesis_formula import exact_root, value_of
from bench.synthesis_readers import (
    ages,
    arrangements,
    before_change,
    boat,
    changed,
    choose,
    common_multiple,
    consecutive,
    dice,
    divisors,
    infinite,
    least_with_remainders,
    leg,
    line_up,
    long_sum,
    mean_speed,
    mixture,
    multiples,
    numbers,
    one_ball,
    percent_change,
    polygon,
    progression,
    recurrence,
    riddle,
    round_figure,
    rows_of_seats,
    share,
    shots,
    sides,
    speed,
    surface,
    team,
    tickets,
    trapezoid,
    triangle_angles,
    triples,
    two_balls,
    two_terms,
    work_together,
)


def upper_limit(t: str, n: Sequence[Any]) -> Any:
    inside, value = re.search(r"\((.+?)\) \\, dx = (\d+)", t).groups()  # type: ignore[union-attr]
    for k in range(1, 200):  # Simpson's rule is exact for a linear function
        area = fmpq(k, 6) * (value_of(inside, x=0) + 4 * value_of(inside, x=fmpq(k, 2)) + value_of(inside, x=k))
        if area == int(value):
            return fmpq(k)
    return None


Story = tuple[str, Callable[[str, list[Any]], Any]]
STORIES: list[Story] = [
    (r"think of a number|When a number is multiplied", riddle),
    (r"consecutive", consecutive),
    (r"as old as", ages),
    (r"wide, and its area|more than its width", sides),
    (r"child ticket", tickets),
    (r"gets \d+ more|puts in", lambda t, n: n[0] + n[1] - n[2]),
    (r"each, and pays with", lambda t, n: n[4] - n[0] * n[1] - n[2] * n[3]),
    (r"after a week of work", lambda t, n: n[0] - n[1] * n[2] - n[3] * n[4]),
    (r"hours a day, \d+ days a week", lambda t, n: n[4] + n[5] * (n[0] * n[1] * n[2] - n[3])),
    (r"hours a day on", lambda t, n: n[4] + n[5] * (n[0] * n[1] * n[2] - n[3])),
    (r"are on the table|are red,", lambda t, n: n[0] * (1 - n[1] - n[2])),
    (r"at first\?|before Monday", lambda t, n: n[2] / ((1 - n[0]) * (1 - n[1]))),
    (r"\d+\\% of \d+[?.]$", lambda t, n: n[0] * n[1] / 100),
    (r"What percent of", lambda t, n: n[1] / n[0] * 100),
    (r"is what percent of", lambda t, n: n[0] / n[1] * 100),
    (r"sales tax|list price", lambda t, n: n[0] * (100 - n[1]) * (100 + n[2]) / 10000),
    (r"have before\?|before the change", before_change),
    (r"value of a share", lambda t, n: n[0] * changed(t)),
    (r"price of a painting", percent_change),
    (r"liters of", mixture),
    (r"ratio \$", share),
    (r"at a steady|in \d+ hours, at a constant|a trip of", speed),
    (r"average speed", mean_speed),
    (r"workers", lambda t, n: n[0] * n[1] / n[2]),
    (r"paint(?:s|) a ", work_together),
    (r"downstream", boat),
    (r"greatest common divisor|divides both", lambda t, n: fmpq(int(fmpz(int(n[0])).gcd(fmpz(int(n[1])))))),
    (r"least common multiple|by both \d", lambda t, n: common_multiple(n[:2])),
    (r"packed into bags|when \d+ is divided by", lambda t, n: fmpq(int(n[0]) % int(n[1]))),
    (r"positive divisors|integers that divide|different prime numbers", divisors),
    (r"minutes, respectively", lambda t, n: common_multiple(n[:3])),
    (r"that leaves a remainder", least_with_remainders),
    (r"integers from 1 to", multiples),
    (r"outfits|different meals", lambda t, n: n[0] * n[1] * n[2]),
    (r"books be arranged|runners finish", lambda t, n: fmpq(math.factorial(int(n[0])))),
    (r"a president", lambda t, n: math.prod((n[0] - k for k in range(3 if "treasurer" in t else 2)), start=fmpq(1))),
    (r"A committee of", lambda t, n: choose(n[2], n[0]) * choose(n[3], n[1])),
    (r"be selected from a group", lambda t, n: choose(n[2], n[0]) * choose(n[3], n[1])),
    (r"letters of", arrangements),
    (r"A team of|different teams", team),
    (r"line up", line_up),
    (r"(?:positive|non-negative) integers", triples),
    (r"dice", dice),
    (r"One ball is", one_ball),
    (r"without replacement", two_balls),
    (r"shots|tossed", shots),
    (r"infinite geometric", infinite),
    (r"\\ldots", progression),
    (r"\\cdots", long_sum),
    (r"a_\{n-1\}", recurrence),
    (r"the \d+\w\w term is", two_terms),
    (r"rows", rows_of_seats),
    (r"space diagonal|opposite corners", lambda t, n: exact_root(n[0] ** 2 + n[1] ** 2 + n[2] ** 2)),
    (r"surface area", surface),
    (r"rectangle is \d+ \w+ long", lambda t, n: n[0] * n[1]),
    (r"perimeter", lambda t, n: 2 * (n[0] + n[1])),
    (r"triangle has a base", lambda t, n: n[0] * n[1] / 2),
    (r"other side, in", lambda t, n: n[0] / n[1]),
    (r"apex", lambda t, n: (180 - n[0]) / 2),
    (r"third angle|Find angle", lambda t, n: 180 - n[0] - n[1]),
    (r"legs of a right|its diagonal", lambda t, n: exact_root(n[0] ** 2 + n[1] ** 2)),
    (r"ladder|one leg of", lambda t, n: leg(n[0], n[1])),
    (r"diameter|circumference|same center|cylinder", round_figure),
    (r"one corner", lambda t, n: n[0] * n[1] - n[2] * n[3]),
    (r"[A-C]\(-?\d", polygon),
    (r"trapezoid", trapezoid),
    (r"\bangles of", triangle_angles),
    (r"Two triangles are similar", lambda t, n: n[2] * (n[1] / n[0]) ** 2),
    (r"similar triangles", lambda t, n: n[3] * (n[1] / n[0]) ** 2),
    (r"positive number \$k\$", upper_limit),
]


def story_answer(text: str) -> Any:
    """What a word problem's answer should be; None when no pattern fits."""
    for pattern, work in STORIES:
        if re.search(pattern, text):
            return work(text, numbers(text))
    return None
