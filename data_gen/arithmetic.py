r"""Numeric equations in a step of prose or LaTeX that do not hold, by exact arithmetic. Pure functions on text.

It speaks only where it cannot have misread: an operand must be a whole expression, set off by white space, a word that
binds nothing, or the end of its clause. "20% of 50 = 10" says nothing of 50 = 10, "f'(3) = -4" nothing of 3 = -4,
"36 = 2ab" nothing of 36 = 2. Units are read over, unless they may convert ("\$0.90 = 90 cents"). Rounded results hold,
and so does a chain that runs on ("5*3 = 15 + 2 = 17"). Nothing is said inside a question, a denial, a congruence or
another base. On the 1400 solutions of ProcessBench gsm8k and math it refutes an equation in 75; in 73 of them people
had marked an error at or before that step, and in the other two the equation is false all the same.
"""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction

from grading.parse import ExpressionParser, ParseError
from grading.values import TooLarge, Undefined, exact

_ANNOTATION = re.compile(r"<<([^<>]*)>>")
_NUMERIC = r"[\d\s.+\-*/()^!]"
_FRACTION = re.compile(rf"(?P<whole>\d\s*)?\\[dt]?frac\s*\{{({_NUMERIC}+)\}}\s*\{{({_NUMERIC}+)\}}")
_REWRITES = [
    (re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\boxed\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:begin|end)\{(?:align|aligned|equation|gather|split|multline)\*?\}"), "\n"),
    (re.compile(r"\.{2,}|\\[lcd]?dots(?![A-Za-z])"), "…"),
    (
        re.compile(
            r"(?<!\\)\\(?:[,;:! ]|quad|left|right|displaystyle)(?![A-Za-z])|\{,\}(?=\d)|\^\s*(?:\\circ|\{\\circ\})|°"
        ),
        "",
    ),
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])|×|·|⋅|∗"), "*"),
    (re.compile(r"\\div(?![A-Za-z])|÷"), "/"),
    (re.compile(r"−|–"), "-"),
    (re.compile(r"\\\(\s*([-+*/])\s*\\\)|\$\s*([*/])\s*\$"), r" \1\2 "),
    (re.compile(r"\\(?:[Rr]ightarrow|implies|Longrightarrow|to)(?![A-Za-z])|→|⇒|[=-]>"), "\n"),
    (re.compile(r"\\(?:approx|sim|le|leq|ge|geq|ne|neq|equiv|cong)(?![A-Za-z])|[<>≤≥≠≡∼~]|!=|:="), "≈"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"(?<![\d)])\*\*|\*\*(?!\s*[\d(])"), ""),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"(\A|[:.*]\s{0,9}\n)\s{0,9}[-*•]\s{1,9}"), r"\1"),
    (re.compile(r"\^\s*\{([\d+\-]+)\}"), r"^(\1)"),
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?:\\\\|\n)\s*(?=&?\s*=)|&\s*(?==)"), " "),
    (re.compile(r"(?<=%)\s+of\s+(?:the\s+)?(?=\\?\$?\s?\d)"), " * "),
]
_CLAUSE = re.compile(r"\n|\$\$?|\\[()\[\]]|\\\\|[;:](?=\s)|\.(?=\s|$)|(?<=[A-Za-z])!(?=\s|$)|,(?=\s)|\?")
_DOUBT = re.compile(
    r"\b(?:not|cannot|isn't|doesn't|don't|wrong|incorrect\w*|false|mistake\w*|error\w*|contradict\w*|impossible|invalid|"
    r"untrue|fails?|no solutions?|never|too (?:high|low|large|small|big)|mod|modulo|congruent|approximately|about|"
    r"roughly|around|rounded|rounding|nearest|estimate\w*|o'clock|[ap]\.?m)\b|≠|\\[pb]?mod\b|\\neq?\b|\\equiv|≡|\\not\b",
    re.I,
)
_OTHER_NUMBERS = re.compile(
    r"\b(?:base[- ]?(?:\d+|two|three|four|five|six|seven|eight|nine|[a-z]\b)|binary|modulo|mod \d)|\\[pb]?mod", re.I
)
_WORD = r"(?:[A-Z]?[a-z]{3,}|[ckm]m|kg|mg|ml|lbs?|oz|ft|in|mi|hrs?|is|be|[Ss]o|or|[Ww]e|[Hh]e|[Ii]t|as|at|on|if)"
_UNIT_WORD = (
    r"(?!(?:of|by|times|and|plus|minus|divided|over|per|to|from|than|hundred|thousand|million|billion|dozen|choose|is|"
    r"are|was|were|equals|so|we|or|if|as|at|on|in|then|gives|which|that|this|have|has|had|for|with|left)\b)"
    r"(?:[A-Z]?[a-z]{3,}|[ckm]m|kg|mg|ml|lbs?|oz|ft|mi|hrs?)"
)
_UNIT = re.compile(
    rf"(?<=[\d%])(?P<words>(?:\s*/\s*|\s+per\s+|\s+){_UNIT_WORD}(?:(?:\s*/\s*|\s+per\s+|\s+){_UNIT_WORD}){{0,2}})"
    r"(?=\s*(?:[-+*/)=≈]|$))"
)
_EXPRESSION = r"(?:[-+(]\s*)*\d[\d\s.+\-*/()^!%]*"
_SIDE_END = re.compile(rf"{_EXPRESSION}$")
_SIDE_START = re.compile(_EXPRESSION)
_FREE_WORD = re.compile(rf"(?:^|[\s(]){_WORD},?\s+$")
_BINDING = re.compile(
    r"\b(?:of|by|times|than|minus|plus|over|per|from|to|divided|and|mod|in|choose|percent|dozen|hundred|thousand|"
    r"million|billion|with|sin|cos|tan|log|sqrt|root|squared|cubed|negative|half|twice|double|triple|step|choice|case|"
    r"part|option|equation|at|star|factorial|power|times|between|multiply|multiplied|subtract|subtracted|add|added),?\s+$",
    re.I,
)
_UNBOUND_RIGHT = re.compile(
    r"\s*\)?\s*$|\s+(?!(?:of|by|times|percent|per|dozen|hundred|thousand|million|billion|choose|mod|over|divided|plus|"
    rf"minus|squared|cubed)\b){_WORD}(?![-\w]*\()[^-+*/^=%\d]*(?:\d|$)"
)
_CONVERTIBLE = re.compile(
    r"\b(cent|minute|hour|second|inch|feet|foot|yard|mile|km|kilometer|meter|cm|mm|gram|kg|kilogram|pound|lb|ounce|oz|"
    r"liter|litre|ml|gallon|quart|cup|pint|day|week|month|year|dozen|degree|percent|quarter|dime|nickel|penn|min|hr|ft)"
    r"(?:s|es|y|ies)?\b",
    re.I,
)
_FACTORS = frozenset((2, 3, 4, 7, 8, 10, 12, 16, 24, 30, 36, 52, 60, 100, 144, 365, 1000, 1760, 3600, 5280))

MAX_TEXT, MAX_CLAUSE = 20_000, 1_000
"""Characters: nothing is said of a longer step or a longer clause."""


@dataclasses.dataclass(frozen=True)
class _Side:
    """A numeric operand: its exact value, its text, and whether it is a bare number."""

    value: Fraction
    text: str

    @property
    def is_bare(self) -> bool:
        return re.fullmatch(r"[-+(\s]*\d[\d.]*[)%\s]*", self.text) is not None


def false_equation(text: str) -> str | None:
    """Return the first equation in the text that exact arithmetic refutes, as "left = right"; None for none."""
    if "=" not in text or len(text) > MAX_TEXT or _OTHER_NUMBERS.search(text):
        return None
    for note in _ANNOTATION.findall(text):
        found = _false_in_clause(_readable(note), "start")
        if found:
            return found
    plain = _readable(_ANNOTATION.sub("", text))
    start, before = 0, "start"
    for match in [*_CLAUSE.finditer(plain), None]:
        end = match.start() if match else len(plain)
        clause = plain[start:end]
        if (
            "=" in clause
            and len(clause) <= MAX_CLAUSE
            and (match is None or match.group() != "?")
            and not _is_doubted(plain, start, end)
        ):
            found = _false_in_clause(clause, before)
            if found:
                return found
        if match:
            start, before = match.end(), match.group()
    return None


def _readable(text: str) -> str:
    """Return the text with LaTeX numbers, operators and relations in one plain spelling."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    while (match := _FRACTION.search(text)) is not None:
        fraction = f"(({match[2]})/({match[3]}))"
        text = text[: match.start()] + (f"{match['whole']}_" if match["whole"] else "") + fraction + text[match.end() :]
    return re.sub(r"\\\$|(?<!\$)\$(?=\s?\d)", "", text)


def _is_doubted(text: str, start: int, end: int) -> bool:
    """True when the sentence around a clause, or the first words behind it, deny or soften what it says."""
    sentence_start = max(text.rfind(". ", 0, start), text.rfind("\n", 0, start), 0)
    sentence_end = re.search(r"[.?!](?=\s|$)|\n", text[end:])
    stop = end + sentence_end.end() + 40 if sentence_end else len(text)
    return _DOUBT.search(text, sentence_start, min(stop, end + 120)) is not None or "?" in text[end : end + 3]


def _false_in_clause(clause: str, before: str) -> str | None:
    written = re.split(r"([=≈])", clause)
    units = [[words.strip() for words in _UNIT.findall(side + "=")] for side in written]
    sides = [_UNIT.sub("", side + "=").removesuffix("=") for side in written]
    for k in range(0, len(sides) - 2, 2):
        if sides[k + 1] != "=":
            continue
        left = _operand(sides[k], is_left=True, is_outer=k == 0, before=before)
        right = _operand(sides[k + 2], is_left=False, is_outer=k + 4 >= len(sides))
        if (
            left is None
            or right is None
            or _holds(left, right)
            or _may_convert(left, right, (units[k], units[k + 2]), clause)
        ):
            continue
        runs_on = k + 3 < len(sides) and _leading_number(right.text) == left.value and not right.is_bare
        if not runs_on:
            return f"{left.text} = {right.text}"
    return None


def _operand(side: str, *, is_left: bool, is_outer: bool, before: str = "") -> _Side | None:
    """Return the numeric expression at the inner end of a side, None when there is none that stands alone.

    is_outer: the side is the first (left) or last (right) of its chain, so words may stand on its outer end.
    before: what divides the clause from the one in front of it.
    """
    match = _SIDE_END.search(side.rstrip()) if is_left else _SIDE_START.match(side.lstrip())
    if match is None:
        return None
    written = match.group().strip()
    outer = side.rstrip()[: match.start()] if is_left else side.lstrip()[match.end() :]
    if not is_left:
        space = match.group()[len(match.group().rstrip()) :]
        written, outer = written.rstrip(".").strip(), space + outer
        if written.endswith("("):
            written, outer = written.rstrip("( "), " " + outer
    if is_left and written.count("(") > written.count(")") and written.startswith("("):
        written, outer = written[1:].strip(), outer + "("
    if not is_left and written.count(")") > written.count("(") and written.endswith(")"):
        written, outer = written[:-1].strip(), ")" + outer
    side_read = _read(written)
    if side_read is None or (is_outer and not is_left and written.endswith("!")):  # "= 12!" may be a shout
        return None
    if is_left:
        stands_alone = _stands_alone_left(outer, side_read, is_outer, before)
    else:
        stands_alone = not outer.strip() or outer.strip() == ")" or (is_outer and bool(_UNBOUND_RIGHT.match(outer)))
    return side_read if stands_alone else None


def _stands_alone_left(outer: str, side: _Side, is_outer: bool, before: str) -> bool:
    if re.match(r"\+|-\s", side.text):  # a bullet, or the rest of a longer sum
        return False
    if not outer.strip():
        return not (side.is_bare and is_outer and before.startswith((",", "\\)", "$", "\\\\")))
    if not is_outer or side.is_bare or side.text.startswith("-"):
        return False
    outer = re.sub(r"\($", "", outer)
    return not outer.strip() or (_FREE_WORD.search(outer) is not None and _BINDING.search(outer) is None)


def _read(written: str) -> _Side | None:
    if not written or re.search(r"%\s*[\d(]", written):  # 17%5 is a remainder
        return None
    try:
        value = exact(ExpressionParser(written).parse())
    except (ParseError, TooLarge, Undefined):
        return None
    return None if value is None else _Side(value, written)


def _leading_number(text: str) -> Fraction | None:
    match = re.match(r"\d+(?:\.\d+)?(?=\s*[-+*/])", text)
    return Fraction(match.group()) if match else None


def _may_convert(left: _Side, right: _Side, units: tuple[list[str], list[str]], clause: str) -> bool:
    """True when units may explain the difference: nothing computed at all, one unit stated as so many of another,
    unlike ones added, or a usual factor.
    """
    if left.is_bare and (units[0] or right.is_bare) and (units[0] != units[1] or _CONVERTIBLE.search(clause)):
        return True
    if len(units[0]) == 1 and units[1] and units[0] != units[1] and re.search(rf"{re.escape(units[0][0])}\s*=", clause):
        return True
    kinds = {match[1].lower() for match in _CONVERTIBLE.finditer(clause)}
    if len(kinds) > 1 and re.search(r"\d\s*[-+]", left.text + right.text):
        return True
    if left.value == 0 or right.value == 0 or not kinds:
        return False
    ratio = abs(left.value / right.value)
    return ratio in _FACTORS or 1 / ratio in _FACTORS


def _holds(left: _Side, right: _Side) -> bool:
    """Equal, rounded at the last written digit, or apart by no more than rounded operands explain."""
    if left.value == right.value:
        return True
    if "%" in left.text + right.text:
        both = (left.text + " " + right.text).replace("%", "")
        hundredfold = left.value * 100 == right.value or left.value == right.value * 100
        return hundredfold or bool(re.search(r"\d\s*[-+]", both)) or _without_percent(left, right)
    decimals = re.fullmatch(r"-?\s*\d+(?:\.(\d+))?", right.text)
    gap = abs(left.value - right.value)
    if decimals and left.value.denominator != 1 and gap < Fraction(1, 10 ** len(decimals[1] or "")):
        return True
    return gap <= _slack(left.text + " " + right.text) * abs(right.value)


def _without_percent(left: _Side, right: _Side) -> bool:
    bare = _read(left.text.replace("%", "")), _read(right.text.replace("%", ""))
    return bare[0] is not None and bare[1] is not None and _holds(bare[0], bare[1])


def _slack(text: str) -> Fraction:
    """Largest relative error that operands rounded to a few decimals may carry into a result."""
    rounded = re.findall(r"\d*\.(\d{2,})", text)
    if any(re.search(r"(33|66|67|16|17|83|14|28|57|71|86|11|22|44|55|77|88|89)$", digits) for digits in rounded):
        return Fraction(12, 1000)
    return Fraction(2, 1000) if any(len(digits) >= 3 for digits in rounded) else Fraction(0)
