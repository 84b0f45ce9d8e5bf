"""What a made problem's TEXT asks, read by patterns, and its answer by exact arithmetic, brute force or substitution.

Every reader sees the text only. ``synthesis_stories`` says which one reads which text; formulas between dollar signs
are read by ``synthesis_symbols``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from flint import fmpq, fmpz

from bench.synthesis_formula import exact_root, value_of

_NUMBER = re.compile(r"\\frac\{(-?\d+)\}\{(\d+)\}|(?<![\w}.^])(-?\d+)(?!\d*-sided)")


def numbers(text: str) -> list[Any]:
    """All numbers of a text in their order, as fmpq; exponents of units and "8-sided" are none."""
    return [fmpq(int(a), int(b)) if a else fmpq(int(c)) for a, b, c in _NUMBER.findall(text)]


def choose(n: Any, k: Any) -> Any:
    return fmpq(math.comb(int(n), int(k)))


def times(text: str) -> list[int]:
    """Multiples of an age: "twice" or "5 times"."""
    return [2 if word == "twice" else int(word.split()[0]) for word in re.findall(r"twice|\d+ times", text)]


def ages(t: str, n: Sequence[Any]) -> Any:
    now, later = times(t)
    older, younger = re.search(r"(\w+) is (?:twice|\d+ times) as old as (\w+)", t).groups()  # type: ignore[union-attr]
    years = int(re.search(r"[iI]n (\d+) years", t)[1])  # type: ignore[index]
    asked = re.search(r"How old is (\w+) now|present age of (\w+)", t)
    name = asked[1] or asked[2]  # type: ignore[index]
    for young in range(1, 120):
        if now * young + years == later * (young + years):
            return fmpq({older: now * young, younger: young}[name])
    return None


def riddle(t: str, n: Sequence[Any]) -> Any:
    return (n[2] - n[1] if re.search(r"\badd", t) else n[2] + n[1]) / n[0]


def before_change(t: str, n: Sequence[Any]) -> Any:
    return n[1] * 100 / (100 + n[0] if re.search("increase|rose", t) else 100 - n[0])


def common_multiple(n: Sequence[Any]) -> Any:
    return fmpq(next(k for k in itertools.count(1) if not any(k % int(p) for p in n)))


def consecutive(t: str, n: Sequence[Any]) -> Any:
    count = 3 if re.search("three", t, re.I) else 4
    step = 1 if "consecutive integers" in t else 2
    for first in range(-500, 500):
        run = [first + step * k for k in range(count)]
        if sum(run) == n[0] and (step == 1 or (first % 2 == 0) == ("even" in t)):
            return fmpq(run[0] if "smallest" in t else run[-1])
    return None


def sides(t: str, n: Sequence[Any]) -> Any:
    more, area = n[:2]
    width = next(w for w in range(1, 3000) if w * (w + more) == area)
    return fmpq(width) + (more if re.search(r"What is its length|Find the length", t) else 0)


def tickets(t: str, n: Sequence[Any]) -> Any:
    adult, child, sold, money = (int(k) for k in n)
    found = [a for a in range(sold + 1) if adult * a + child * (sold - a) == money]
    assert len(found) == 1
    return fmpq(found[0] if re.search(r"many adult|of adult", t) else sold - found[0])


def changed(t: str) -> Any:
    factor = fmpq(1)
    for way, percent in re.findall(r"(rises|falls) by (\d+)", t):
        factor *= fmpq(100 + int(percent) if way == "rises" else 100 - int(percent), 100)
    return factor


def mixture(t: str, n: Sequence[Any]) -> Any:
    one, other, total, target = n[:4]
    return next(fmpq(k, 1) for k in range(1, 500) if one * k + other * (total - k) == target * total)


def boat(t: str, n: Sequence[Any]) -> Any:
    way, down, back = (n[0], n[1], n[2]) if "covers" in t else (n[1], n[0], n[2])
    fast, slow = way / down, way / back
    return (fast + slow) / 2 if "of the boat" in t else (fast - slow) / 2


def share(t: str, n: Sequence[Any]) -> Any:
    first, second = re.search(r"(\w+) and (\w+) (?:share|in the ratio)", t).groups()  # type: ignore[union-attr]
    name = re.search(r"does (\w+) get|What is (\w+)'s share", t)
    who = name[1] or name[2]  # type: ignore[index]
    assert who in (first, second)
    return n[0] * n[1 if who == first else 2] / (n[1] + n[2])


def speed(t: str, n: Sequence[Any]) -> Any:
    return n[0] * n[1] if "How many kilometers" in t else n[0] / n[1] if "What is the speed" in t else n[1] / n[0]


def mean_speed(t: str, n: Sequence[Any]) -> Any:
    hours = (n[1], n[3]) if "train" in t else (n[0], n[2])
    return (n[0] * n[1] + n[2] * n[3]) / sum(hours)


def work_together(t: str, n: Sequence[Any]) -> Any:
    a, b = n[:2]
    head = n[2] if "starts alone" in t else fmpq(0)
    return (1 - head / a) / (1 / a + 1 / b)


def percent_change(t: str, n: Sequence[Any]) -> Any:
    factor = changed(t)
    assert ("percent does the price increase" in t) == (factor > 1)
    return abs(factor - 1) * 100


def least_with_remainders(t: str, n: Sequence[Any]) -> Any:
    pairs = [(int(r), int(m)) for r, m in re.findall(r"remainder of (\d+) when divided by (\d+)", t)]
    above = int(match[1]) if (match := re.search(r"greater than (\d+)", t)) else 0
    return next(fmpq(k) for k in itertools.count(above + 1) if all(k % m == r for r, m in pairs))


def multiples(t: str, n: Sequence[Any]) -> Any:
    last, a, b = (int(k) for k in n[1:4])
    either = "(or by both)" in t
    return fmpq(sum((k % a == 0 or k % b == 0) if either else (k % a == 0 and k % b != 0) for k in range(1, last + 1)))


def divisors(t: str, n: Sequence[Any]) -> Any:
    found = [d for d in range(1, int(n[0]) + 1) if int(n[0]) % d == 0]
    if "prime" in t:
        return fmpq(len(fmpz(int(n[0])).factor()))
    return fmpq(sum(found) if "sum" in t else len(found))


def arrangements(t: str, n: Sequence[Any]) -> Any:
    word = re.search(r"\b[A-Z]{4,}\b", t)[0]  # type: ignore[index]
    return fmpq(math.factorial(len(word))) / math.prod(math.factorial(word.count(c)) for c in set(word))


def team(t: str, n: Sequence[Any]) -> Any:
    if t.startswith("A team"):
        size, one, two, least = (int(k) for k in n)
    else:
        one, two, size, least = (int(k) for k in n)
    people = range(one + two)
    return fmpq(sum(sum(p < one for p in team) >= least for team in itertools.combinations(people, size)))


def line_up(t: str, n: Sequence[Any]) -> Any:
    people = int(n[0]) + (2 if "other people" in t else 0)
    apart = "do not stand" in t or "not end up" in t
    places = [(i, j) for i in range(people) for j in range(people) if i != j and (abs(i - j) > 1) == apart]
    return fmpq(len(places) * math.factorial(people - 2))


def triples(t: str, n: Sequence[Any]) -> Any:
    total, low = int(re.search(r"x \+ y \+ z = (\d+)", t)[1]), 1 if "positive" in t else 0  # type: ignore[index]
    return fmpq(sum(total - x - y >= low for x in range(low, total + 1) for y in range(low, total + 1)))


def dice(t: str, n: Sequence[Any]) -> Any:
    count, faces, total = 3 if re.search("three", t, re.I) else 2, 8 if "8-sided" in t else 6, int(n[-1])
    word = re.search(r"equal to|greater than|less than|at least|at most|exactly", t)[0]  # type: ignore[index]
    holds = {
        "equal to": total.__eq__, "exactly": total.__eq__, "greater than": total.__lt__, "less than": total.__gt__,
        "at least": total.__le__, "at most": total.__ge__,
    }[word]  # fmt: skip
    rolls = list(itertools.product(range(1, faces + 1), repeat=count))
    return fmpq(sum(holds(sum(roll)) for roll in rolls), len(rolls))


def one_ball(t: str, n: Sequence[Any]) -> Any:
    counts = {color: int(k) for k, color in re.findall(r"(\d+) (red|blue|green|white|black|yellow)", t)}
    color = re.search(r"that it is (\w+)|probability of a (\w+) ball", t)
    return fmpq(counts[color[1] or color[2]], sum(counts.values()))  # type: ignore[index]


def two_balls(t: str, n: Sequence[Any]) -> Any:
    counts = re.findall(r"(\d+) (red|blue|green|white|black|yellow)", t)
    balls = [color for k, color in counts for _ in range(int(k))]
    pairs = list(itertools.combinations(balls, 2))
    if "same color" in t:
        fits = [a == b for a, b in pairs]
    elif "different colors" in t:
        fits = [a != b for a, b in pairs]
    elif both := re.search(r"both are (\w+)", t):
        fits = [a == b == both[1] for a, b in pairs]
    else:
        one, two = re.search(r"one is (\w+) and one is (\w+)", t).groups()  # type: ignore[union-attr]
        fits = [{a, b} == {one, two} for a, b in pairs]
    return fmpq(sum(fits), len(pairs))


def shots(t: str, n: Sequence[Any]) -> Any:
    p = n[0]
    trials = int(re.search(r"(\d+) shots|tossed (\d+)", t)[0].split()[-2 if "shots" in t else -1])  # type: ignore[index]
    word, hits = re.search(r"(exactly|at least) (once|twice|\d+ times)", t).groups()  # type: ignore[union-attr]
    k = {"once": 1, "twice": 2}.get(hits) or int(hits.split()[0])
    total = fmpq(0)
    for outcome in itertools.product((0, 1), repeat=trials):
        if (sum(outcome) == k) if word == "exactly" else (sum(outcome) >= k):
            total += math.prod((p if hit else 1 - p for hit in outcome), start=fmpq(1))
    return total


def terms(t: str, n: Sequence[Any]) -> tuple[list[Any], int]:
    """First terms of a sequence in the text, and the place or number of terms asked for."""
    shown = re.search(r"\$([-\d, ]+), \\ldots\$", t)[1]  # type: ignore[index]
    count = re.search(r"(\d+)(?:st|nd|rd|th) term|first (\d+) terms", t)
    return [fmpq(int(k)) for k in shown.split(",")], int(count[1] or count[2])  # type: ignore[index]


def progression(t: str, n: Sequence[Any]) -> Any:
    first, count = terms(t, n)
    is_geometric = "geometric" in t
    run = [first[0]]
    while len(run) < count:
        run.append(run[-1] * (first[1] / first[0]) if is_geometric else run[-1] + (first[1] - first[0]))
    assert run[:3] == first[: len(run[:3])]
    return sum(run, fmpq(0)) if "sum" in t else run[-1]


def long_sum(t: str, n: Sequence[Any]) -> Any:
    a, b, c, last = n[:4]
    assert b - a == c - b == n[4]
    return sum((a + (b - a) * k for k in range(int((last - a) / (b - a)) + 1)), fmpq(0))


def infinite(t: str, n: Sequence[Any]) -> Any:
    if "common ratio" in t:
        a, ratio = n[0], value_of(re.search(r"ratio is \$(.+?)\$", t)[1])  # type: ignore[index]
    else:
        a, second, third = shown_terms(re.search(r"series \$(.+?) [+-] \\cdots", t)[1])  # type: ignore[index]
        ratio = second / a
        assert third == second * ratio
    return a / (1 - ratio)


def shown_terms(text: str) -> list[Any]:
    pieces = re.split(r" (?=[+-] )", text)
    return [value_of(piece.replace("+ ", "").replace("- ", "-")) for piece in pieces]


def recurrence(t: str, n: Sequence[Any]) -> Any:
    a, b = (int(k) for k in re.findall(r"a_[12] = (-?\d+)", t))
    rule = re.search(r"a_n = (.+?)\$ for", t)[1].replace("a_{n-1}", "p").replace("a_{n-2}", "q")  # type: ignore[index]
    place = int(re.search(r"(?:Find|What is) \$a_\{(\d+)\}", t)[1])  # type: ignore[index]
    run = [fmpq(a), fmpq(b)]
    while len(run) < place:
        run.append(value_of(rule, p=run[-1], q=run[-2]))
    return run[place - 1]


def two_terms(t: str, n: Sequence[Any]) -> Any:
    i, j, k = (int(x) for x in re.findall(r"(\d+)(?:st|nd|rd|th) term", t))
    a, b = (fmpq(int(x)) for x in re.findall(r"is \$(-?\d+)\$", t))
    return a + (b - a) / (j - i) * (k - i)


def rows_of_seats(t: str, n: Sequence[Any]) -> Any:
    return sum((n[1] + n[2] * k for k in range(int(n[0]))), fmpq(0))


def polygon(t: str, n: Sequence[Any]) -> Any:
    points = [(fmpq(int(x)), fmpq(int(y))) for x, y in re.findall(r"[A-D]\((-?\d+), (-?\d+)\)", t)]
    (x0, y0), rest = points[0], points[1:]
    fan = [((ax - x0) * (by - y0) - (bx - x0) * (ay - y0)) / 2 for (ax, ay), (bx, by) in itertools.pairwise(rest)]
    assert all(area > 0 for area in fan) or all(area < 0 for area in fan)  # no corner points inwards
    return abs(sum(fan, fmpq(0)))


def triangle_angles(t: str, n: Sequence[Any]) -> Any:
    inner = re.findall(r"\$\((.+?)\)\^\\circ\$", t)
    at_0, at_1 = (sum((value_of(f, x=k) for f in inner), fmpq(0)) for k in (0, 1))
    x = (180 - at_0) / (at_1 - at_0)
    angles = sorted(value_of(f, x=x) for f in inner)
    assert angles[0] > 0
    return angles[0] if "smallest" in t else angles[-1]


def round_figure(t: str, n: Sequence[Any]) -> Any:
    if "diameter" in t:
        return math.pi * float(int(n[0]) / 2) ** 2
    if "circumference" in t:
        return math.pi * (int(re.search(r"\$(\d+)\\pi", t)[1]) / 2) ** 2  # type: ignore[index]
    a, b = int(n[0]), int(n[1])
    return math.pi * a * a * b if "cylinder" in t else math.pi * (a * a - b * b)


def leg(a: Any, b: Any) -> Any:
    return exact_root(a * a - b * b)


def trapezoid(t: str, n: Sequence[Any]) -> Any:
    bottom, top, side = n[:3]
    return (bottom + top) / 2 * leg(side, (bottom - top) / 2)


def surface(t: str, n: Sequence[Any]) -> Any:
    a, b, volume = n[:3]
    c = volume / (a * b)
    return 2 * (a * b + b * c + a * c)
