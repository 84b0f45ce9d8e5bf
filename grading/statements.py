"""The value a last sentence states: "Therefore, 8 pens will cost $12.00." -> "$12.00". Pure functions on text.

A sentence of a conclusion ("So ...", "Therefore ...") is read as subject, verb and object: the one number, else the
number in bold, else the number behind the last "is", else the one number that follows the main verb before the next
clause. Doubt, negation and alternatives state nothing, and neither does a sentence in which two numbers could be meant.
"""

from __future__ import annotations

import re

VALUE = r"\\?\$?\s*[-+−]?\s*\\?\$?\d[\d,]*(?:\.\d+)?(?:\s+\d+\s*/\s*\d+|\s*/\s*\d+)?"
"""A number as prose writes it: sign, money, thousands, decimals, fraction, mixed number."""
_STATEMENT = re.compile(
    rf"(?:so|thus|hence|therefore|then|now)?,?\s*(?:the|there|this|that|it|he|she|they|we|in total)\b[^.\d=]{{0,80}}?"
    rf"\s(?:is|are|was|were|equals?|costs?|totals?)\s+(?:\*\*)?(?P<value>{VALUE}\s*(?:%|percent)?(?:\s+[A-Za-z]+,?){{0,4}})"
    r"(?:\*\*)?\s*[.!]?",
    re.I,
)
_CONCLUSION = re.compile(
    r"(?:so|thus|hence|therefore|in total|in conclusion|altogether|finally|overall|in summary)\b,?\s*", re.I
)
DOUBT_WORDS = "cannot unable unsure maybe perhaps whether either or impossible unclear think guess not never we ? "
DOUBT_WORDS += "wrong incorrect contradiction consider try let continue fail fails could might may no next than"
_DOUBTS = frozenset(DOUBT_WORDS.split())
_WORDS = re.compile(r"[a-z']+|\?")
_DOUBT = re.compile(
    r"\b(?:cannot|unable|unsure|maybe|perhaps|whether|either|or|impossible|unclear|think|guess|"
    r"wrong|incorrect|contradiction|consider|try|let|continue|fails?|(?:could|might|may) be|no solution|might|"
    r"next (?:step|case|term)|"
    r"(?:is|are|be|was) (?:greater|less|more|fewer|smaller|larger|higher|lower) than [^\sA-Za-z]*\d|"
    r"we\s+(?:still\s+|now\s+)?(?:have|need|must|can|should)\s+(?:to\s+)?"
    r"(?:add|subtract|multiply|divide|find|compute|calculate|check|solve))\b|\?|"
    rf"(?:\bnot|n't|\bnever)\s+(?:\w+\s+){{0,3}}?(?:\*\*)?{VALUE}|"
    r"(?:\bnot|n't)\s+(?:know|sure|certain|believe|determine|find|see|possible|enough|correct|work)\b",
    re.I,
)
_NUMBER = re.compile(rf"(?<![\w.:/^])(?P<value>{VALUE})(?P<percent>\s*(?:\\?%|percent\b))?(?![\w:^]|\.\d|-[A-Za-z])")
_ORDINAL = re.compile(r"(?<![\w.])(?P<value>\d[\d,]*)(?:st|nd|rd|th)\b")
_ANY_NUMBER = re.compile(r"\d[\d,.]*")
_BOLD = re.compile(rf"\*\*(?P<value>{VALUE}\s*\\?%?)(?:\s+[A-Za-z]+){{0,3}}[.!]?\*\*")
_STATED_LAST = re.compile(
    rf"(?:(?<!that )(?<!which )(?<!who )\b(?:is|are|was|were|be|equals)|=)\s+(?P<value>{VALUE}(?:\s*\\?%)?)(?=[^\d]*$)"
)
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|vs|approx|no)\.$", re.I)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\\\]\s+(?=[A-Z])")
_LEADING_CLAUSE = re.compile(
    r"(?:after|if|when|with|since|given|in|at|for|by|because|once|while|during|assuming|considering|on|over|as)\b", re.I
)
MAIN_VERB = re.compile(
    r"\b(?:(?:will|would|can|could|must|should)(?:\s+(?:now|then|still|only|also|need|have|be able|to)\b)*\s+[a-z]+|"
    r"is|are|was|were|has|have|had|needs?|needed|costs?|spends?|spent|earns?|earned|makes?|made|gets?|got|saves?|saved|"
    r"pays?|paid|uses?|used|takes?|took|obtain(?:s|ed)|receive[sd]|sells?|sold|buys?|bought|eats?|ate|walk(?:s|ed)|runs?|"
    r"ran|travel(?:s|ed)|work(?:s|ed)|reads?|gives?|gave|collect(?:s|ed)|produce[sd]|contain(?:s|ed)|holds?|weigh(?:s|ed)|"
    r"owe[sd]|equals?|totals?|watch(?:es|ed)|drinks?|drank|grows?|grew|scored?|keeps?|kept|order(?:s|ed))\b"
)
_NEXT_CLAUSE = re.compile(
    r"\b(?:that|which|who|to|if|when|after|before|because|since|in|on|at|for|from|by|with|over|per|than|while)\b|,\s"
)
_INLINE = re.compile(r"\\\((.+?)\\\)")
_PLAIN_VALUE = re.compile(rf"\s*{VALUE}(?:\s*\\?%)?\s*")


def last_sentence(line: str) -> str:
    """Return the last sentence of a line; a title ("Mrs.") ends none, a displayed formula ends one."""
    start = 0
    for match in _SENTENCE_END.finditer(line):
        if not _ABBREVIATION.search(line, 0, match.start()):
            start = match.end()
    return line[start:]


def is_conclusion(sentence: str) -> bool:
    """True for a "So ...", "Therefore ..." that leads up to a formula, without doubt or negation."""
    opening = _CONCLUSION.match(sentence)
    return opening is not None and not _is_doubted(sentence[opening.end() :] + " 1")


def stated_value(sentence: str, is_announced: bool = False) -> str | None:
    """Return the value a sentence states, None when it states none.

    Args:
        sentence: one sentence, at most a line.
        is_announced: read it as a conclusion even if it does not open with "So", "Therefore", ...
    """
    whole = _STATEMENT.fullmatch(sentence)
    if whole:
        return whole["value"].strip(" ,")
    opening = _CONCLUSION.match(sentence)
    if opening is None and not is_announced:
        return None
    clause = _without_inline_math(sentence[opening.end() :] if opening else sentence)
    if clause is None or _is_doubted(clause):
        return None
    bold = _BOLD.findall(clause)
    if len(bold) == 1:
        return bold[0].strip()
    clause = _main_clause(clause)
    return _only_number(clause) or _number_behind_is(clause) or _number_behind_verb(clause)


def _is_doubted(clause: str) -> bool:
    """True for doubt, a negated number, an alternative and a step that is still to do."""
    words = _WORDS.findall(clause.lower())
    may_be = not _DOUBTS.isdisjoint(words) or any(word.endswith("n't") for word in words)
    return may_be and _DOUBT.search(clause) is not None


def _without_inline_math(sentence: str) -> str | None:
    r"""Replace ``\(12 + 1 = 13\)`` by 13; None when other formulas are left, so that no number stands for itself."""

    def value(match: re.Match[str]) -> str:
        last = match[1].rsplit("=", 1)[-1]
        return last.strip() if _PLAIN_VALUE.fullmatch(last) else match[0]

    sentence = _INLINE.sub(value, sentence)
    return None if re.search(r"\\[A-Za-z(\[]", sentence) else sentence


def _main_clause(clause: str) -> str:
    """Drop clauses that lead in: "after 10 years, Tom has 91 trees" -> "Tom has 91 trees"."""
    if not _LEADING_CLAUSE.match(clause):
        return clause
    rest = clause.rpartition(", ")[2]
    return rest if _ANY_NUMBER.search(rest) and not re.match(r"(?:and|or|but)\b", rest) else clause


def _only_number(clause: str) -> str | None:
    found = list(_NUMBER.finditer(clause))
    if len(found) == 1 and len(_ANY_NUMBER.findall(clause)) == 1:
        return _text(found[0])
    modifiers = len(re.findall(r"(?<![\w.])\d[\d,.]*-[A-Za-z]", clause))
    ordinals = list(_ORDINAL.finditer(clause))
    others = len(_ANY_NUMBER.findall(_NUMBER.sub(" ", clause))) - modifiers - len(ordinals)
    if others:
        return None
    if len(found) == 1:
        return _text(found[0])
    return ordinals[0]["value"] if not found and len(ordinals) == 1 and not modifiers else None


def _number_behind_is(clause: str) -> str | None:
    match = _STATED_LAST.search(clause)
    return match["value"].strip(" ,") if match else None


def _number_behind_verb(clause: str) -> str | None:
    """Return the object of the main verb: the first number behind it, if the next one stands in another clause."""
    verb = MAIN_VERB.search(clause)
    if verb is None:
        return None
    number = _NUMBER.search(clause, verb.end())
    if number is None or len(clause[verb.end() : number.start()].split()) > 6:
        return None
    following = _ANY_NUMBER.search(clause, number.end())
    if following and not _NEXT_CLAUSE.search(clause, number.end(), following.start()):
        return None
    return _text(number)


def _text(number: re.Match[str]) -> str:
    return (number["value"] + (number["percent"] or "")).strip(" ,")
