"""Spelling of answers: everything that changes how an answer is written and not what it says. Pure functions on
text.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_CHARACTERS = {
    "−": "-", "–": "-", "﹣": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "∕": "/",
    "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∪": r"\cup ",
    "∈": r"\in ", "√": r"\sqrt ", "°": r"^\circ ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "ℝ": r"\mathbb{R}", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "\u00a0": " ", "，": ",",
    "\u2009": "\\,", "\u202f": "\\,", "｛": "\\{", "｝": "\\}", "［": "[", "］": "]", "¢": " cents", "£": "", "€": "",
    "¥": "", "⟨": "(", "⟩": ")",
    "：": ":", "（": "(", "）": ")", "％": "%", "‘": "'", "“": '"', "”": '"', "’": "'",
}  # fmt: skip
_CHARACTERS |= {  # the other vulgar fractions: their compatibility form is "1⁄3"
    c: r"\frac{" + unicodedata.normalize("NFKC", c).replace("⁄", "}{") + "}" for c in "⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒"
}
_TRANSLATION = str.maketrans(_CHARACTERS | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""))
_THIN_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:\\[,;: ]\d{3})+(?!\d)")
_DOLLARS = re.compile(r"\s*(-?)\s*(?:\\\$|\$(?=[^$]*$))\s*(-?[\d,]*\.?\d+)\s*\.?\s*")
_SPACING = re.compile(r"(?<!\\)\\(?:[,;:!> ]|quad\b|qquad\b|displaystyle\b|textstyle\b|limits\b|nolimits\b|hfill\b)|~")
_SIZES = re.compile(r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|biggl?|biggr?|Biggl?|Biggr?|middle)(?![A-Za-z])\.?")
_SYNONYMS = [
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\(?:leq|leqslant|le)(?![A-Za-z])"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant|ge)(?![A-Za-z])"), r"\\ge "),
    (re.compile(r"\\(?:neq|ne)(?![A-Za-z])"), r"\\ne "),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"\\(?:lbrace|\{)"), r"\\{"),
    (re.compile(r"\\(?:rbrace|\})"), r"\\}"),
    (re.compile(r"\\(?:mathbf|bm|boldsymbol|mathit|mathsf|operatorname\*?)\s*\{([^{}]*)\}"), r"{\1}"),
    (re.compile(r"\\lbrack(?![A-Za-z])"), "["),
    (re.compile(r"\\rbrack(?![A-Za-z])"), "]"),
    (re.compile(r"\\langle(?![A-Za-z])"), "("),
    (re.compile(r"\\rangle(?![A-Za-z])"), ")"),
    (re.compile(r"\^\s*\{?\s*\\(?:text|mathrm)\{o\}\s*\}?"), r"^\\circ "),
    (re.compile(r"(\\circ\s*\}?)\s*\\(?:text|mathrm)\s*\{\s*([CF])\s*\}"), r"\1 \2"),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"\\[hv]?phantom\s*(?:\{[^{}]*\}|-)"), ""),
    (re.compile(r"^\s*\\approx(?![A-Za-z])"), ""),
    (re.compile(r"\*\*(?=\s*[-\d({])"), "^"),
]
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d])(?!,\d)")
_BOLD = re.compile(r"\*\*([^*]+)\*\*\.?\s*$")
_TEXT_ONLY = re.compile(
    r"\\(?:text|textbf|mathrm|mbox)\s*\{\s*((?:[A-Z]|[-\d.,/]+)(?:(?:\s*,\s*|\s+(?:and|or)\s+)[^{},]+)*)\}"
)
"""Text that holds an answer of another kind: \\text{6 and 8}, \\text{B, C}."""
_SPACED_THOUSANDS = re.compile(r"-?\d{1,3}(?: \d{3})+")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(.*)\}", re.S)
_EQUAL_PARENTHESES = re.compile(r"(\(+)([^()]*)(\)+)")


def clean(text: str) -> str:
    """Return the answer with one spelling for signs, spaces, dollars, fractions and digits.

    Policies: digits of every script count; superscript digits are exponents; ``{,}`` and commas between groups of three
    outside brackets are thousands separators; dollar signs and trailing sentence marks say nothing.
    """
    if text.isascii():
        if text.isalnum():
            return text
    else:
        text = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
        text = text.translate(_TRANSLATION)
        text = "".join(_ascii_digit(c) for c in text)
    box = _BOX.fullmatch(text.strip().strip("$").strip()) if "\\" in text else None
    text = box.group(1) if box else text
    if "$" in text:
        text = _DOLLARS.sub(r"\1\2 dollars", text) if _DOLLARS.fullmatch(text) else text
    if "\\" in text:
        text = re.sub(r"(?<=\d),\\!\s*(?=\d{3})", "", text).replace("\\!", "")
        text = _THIN_THOUSANDS.sub(lambda m: re.sub(r"\D", "", m.group()), text)
    text = re.sub(r"\{,\s*\}", "", text) if "{," in text else text
    text = text.replace(r"\$", "").replace("$", "").replace(r"\%", "%").replace(r"\#", "#")
    text = re.sub(r"^\s*\\[(\[]|\\[)\]]\s*$", "", text)
    text = _SPACING.sub(" ", _SIZES.sub("", text)) if "\\" in text or "~" in text else text
    text = _BOLD.sub(r"\1", text) if text.startswith("**") else text
    for pattern, replacement in _SYNONYMS:
        text = pattern.sub(replacement, text)
    text = text.strip().strip('"').strip("*").strip()
    text = re.sub(r"(?<=[^.\\])[.;,]+$", "", text).strip()
    text = re.sub(r"^=\s*|\s*\\\\$", "", text)
    words = _TEXT_ONLY.fullmatch(text)
    text = words[1].strip() if words else text
    text = text.replace(" ", "") if _SPACED_THOUSANDS.fullmatch(text) else text
    return _strip_parentheses(_without_thousands(text))


def _ascii_digit(character: str) -> str:
    if character.isascii():
        return character
    value = unicodedata.decimal(character, None)
    return character if value is None else str(value)


def _without_thousands(text: str) -> str:
    if "," not in text:
        return text
    pieces, depth, last = [], 0, 0
    for match in re.finditer(r"[(\[{]|[)\]}]|" + _THOUSANDS.pattern, text):
        token = match.group()
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        elif depth == 0:
            pieces += [text[last : match.start()], token.replace(",", "")]
            last = match.end()
    return "".join([*pieces, text[last:]])


def _strip_parentheses(text: str) -> str:
    match = _EQUAL_PARENTHESES.fullmatch(text)
    if match and len(match[1]) == len(match[3]) and "," not in match[2]:
        return match[2].strip()
    return text


def plain_text(text: str) -> str:
    r"""Return the words of an answer for comparison as text: ``\text{Monday}`` and ``Monday.`` -> ``monday``."""
    text = re.sub(r"\\(?:text|textbf|textit|textrm|mathrm|mbox|mathbf|rm|bf)\b\s*", "", text)
    text = re.sub(r"[{}$]|\\[,;!: ]|\\", "", text)
    words = text.strip().strip("()\"'.").lower().split()
    return " ".join(words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words)


# Units: name -> (dimension, factor to the dimension's base unit). Only units on both sides are compared.
_UNITS: dict[str, tuple[str, Fraction]] = {}
for _dimension, _names in {
    "length": "mm .001 millimeter .001 cm .01 centimeter .01 dm .1 m 1 meter 1 metre 1 km 1000 kilometer 1000 "
    "in .0254 inch .0254 inche .0254 ft .3048 feet .3048 foot .3048 yd .9144 yard .9144 mile 1609.344 mi 1609.344",
    "mass": "mg .001 g 1 gram 1 kg 1000 kilogram 1000 lb 453.59237 pound 453.59237 ounce 28.349523125 oz 28.349523125",
    "time": "s 1 sec 1 second 1 min 60 minute 60 h 3600 hr 3600 hour 3600 day 86400 week 604800",
    "money": "dollar 1 usd 1 cent .01",
    "angle": "degree 1 deg 1",
    "radians": "rad 1 radian 1",
    "volume": "ml .001 milliliter .001 l 1 liter 1 litre 1 gallon 3.785411784 quart .946352946 pint .473176473",
    "speed": "mph .44704 km/h 5/18 kph 5/18 m/s 1",
}.items():
    _words = _names.split()
    for _name, _factor in zip(_words[::2], _words[1::2], strict=True):
        _UNITS[_name] = (_dimension, Fraction(_factor))

_UNIT_AT_END = re.compile(
    r"^(?P<value>.*?[\d})!ie.%]|.*\\pi)\s*"
    r"(?:\\(?:text|textrm|mathrm|mbox|rm)\s*\{\s*(?P<a>[^{}]*)\}|(?<![A-Za-z\\])(?P<b>[A-Za-z]{2,}(?:/[A-Za-z]+)?"
    r"(?:[\s,]+[A-Za-z]+,?)*)|(?P<c>\^\s*\{?\s*\\circ\s*\}?(?:\s*[CF])?)|\s(?P<d>[mghsl]))"
    r"(?:\^\s*\{?(?P<power>[23])\}?)?$",
    re.S,
)


def split_unit(text: str) -> tuple[str, tuple[str, int, Fraction] | None, bool]:
    r"""Split a unit off a cleaned answer: "35 cm" -> ("35", ("length", 1, 1/100), False). The third: a percent sign was
    there.

    Unknown nouns ("72 clips") are dropped. The unit is (dimension, power, factor), None without a known one.
    """
    percent = re.fullmatch(r"(.*?\S)\s*(?:%|\\?(?:text|mathrm)?\s*\{?\s*(?:percent|per cent)\s*\}?)", text, re.S)
    if percent and re.search(r"\d", percent[1]):
        return percent[1].strip(), None, True
    match = _UNIT_AT_END.fullmatch(text)
    if match is None:
        return text, None, False
    if match["c"] and re.search(r"\\[a-z]{3}", match["value"].replace("\\frac", "").replace("\\sqrt", "")):
        return text, None, False  # the degrees of \\sin 30^\\circ are no unit of its value
    if match["c"]:
        return match["value"].strip(), ("angle", 1, Fraction(1)), False
    name = (match["a"] or match["b"] or match["d"] or "").strip().lower().rstrip(".,")
    if (
        not name
        or re.search(r"[\d=<>\\]" if match["b"] else r"[\d=<>,\\]", name)
        or name in NOT_UNITS
        or name.split()[0] in NOT_UNITS
    ):
        return text, None, False
    power = int(match["power"] or 1)
    for word, exponent in (("square ", 2), ("sq ", 2), ("cubic ", 3)):
        if name.startswith(word):
            name, power = name[len(word) :], exponent
    known = _UNITS.get(name) or _UNITS.get(name.removesuffix("s")) or _UNITS.get(name.rstrip("."))
    unit = (known[0], power, known[1] ** power) if known else None
    if unit is None and match["b"] and (len(name) < 3 or name in FUNCTION_WORDS):
        return text, None, False
    return match["value"].strip(), unit, False


NOT_UNITS_NAMES = "or and if mod choose x y z n pi inf infinity to noon midnight "
NOT_UNITS = frozenset(NOT_UNITS_NAMES.split())
FUNCTION_WORDS_NAMES = (
    "sin cos tan sec csc cot log ln exp sqrt arcsin arccos arctan sinh cosh tanh abs max min gcd lcm "
)
FUNCTION_WORDS = frozenset(FUNCTION_WORDS_NAMES.split())
