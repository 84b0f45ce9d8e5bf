r"""Problems from a small LaTeX subset, read into terms of the kernel; anything else is refused with its place.

    statement  = [ formula { "," formula } \vdash ] formula                    x > 0, x^2 = 4 \vdash x = 2
    formula    = side [ \iff side ]          side = conj { \lor conj }         conj = atom { \land atom }
    atom       = sum relation sum { relation sum } | integer \mid sum | "(" formula ")"
    relation   = "=" | \ne | \neq | ">" | "<" | \ge | \geq | \le | \leq
    sum        = ["+"|"-"] product { ("+"|"-") product }
    product    = power { [\cdot | \times | "*" | "/"] power }                   2x, 2(x + 1), x/3
    power      = base [ "^" ( digit | "{" digits "}" ) ]
    base       = digits | variable | "(" sum ")" | \frac "{" sum "}" "{" sum "}"

Variables: x y z u (real), n m k (integer). a \le b is read as b ≥ a; a < b < c as a < b ∧ b < c.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from fractions import Fraction

from common.errors import InputError
from math_env import terms
from math_env.problems import Problem
from math_env.rules import FACTS
from math_env.terms import MAX_POWER, VARIABLES, Expr, Refused, num, var
from math_env.tokens import row, show

MAX_CHARACTERS = 2000
MAX_TOKENS = 300
MAX_DEPTH = 30
RELATIONS = {"=": "eq", r"\ne": "ne", r"\neq": "ne", ">": "gt", r"\ge": "ge", r"\geq": "ge"}
TURNED = {"<": "gt", r"\le": "ge", r"\leq": "ge"}
PRODUCT = (r"\cdot", r"\times", "*")
JOINED = {r"\land": "and", r"\wedge": "and", r"\lor": "or", r"\vee": "or"}
COMMANDS = {
    *RELATIONS,
    *TURNED,
    *PRODUCT,
    *JOINED,
    r"\iff",
    r"\Leftrightarrow",
    r"\mid",
    r"\frac",
    r"\dfrac",
    r"\vdash",
}
TOKEN = re.compile(
    r"\s+|\\left(?![A-Za-z])|\\right(?![A-Za-z])|\\[,;! ]|(\\[A-Za-z]+|[0-9]+|[A-Za-z]|[-+*/^=<>(){},])", re.A
)


def custom(statement: str) -> Problem:
    """A problem from LaTeX, without script or witness: whether it can be proved is not known.

    Raises:
        InputError: not of the subset, ill-formed (divisibility of a real term), or too large for a state.
    """
    if len(statement) > MAX_CHARACTERS:
        raise InputError(f"a statement of at most {MAX_CHARACTERS} characters is wanted, got {len(statement)}")
    hypotheses, goal = _Reader(statement).statement()
    for formula in (*hypotheses, goal):
        try:
            terms.check(formula)
        except Refused as error:
            raise InputError(f"not a problem of this environment: {error}") from None
        if row(formula) is None:
            raise InputError("a formula that fits 96 tokens and numbers up to 9999 is wanted")
    if len(hypotheses) > FACTS:
        raise InputError(f"at most {FACTS} hypotheses are wanted, got {len(hypotheses)}")
    text = " ; ".join(map(show, (*hypotheses, goal)))
    return Problem(hashlib.sha256(text.encode()).hexdigest()[:16], "custom", 0, hypotheses, goal, {}, ())


class _Reader:
    """Recursive descent over the tokens; `_at` is the one to read next."""

    def __init__(self, source: str) -> None:
        self._tokens: list[tuple[str, int]] = []
        position = 0
        while position < len(source):
            found = TOKEN.match(source, position)
            if found is None:
                raise InputError(f"a character of the subset is wanted, got {source[position]!r} at {position}")
            token = found.group(1)
            if token is not None:
                if token[0] == "\\" and token not in COMMANDS:
                    raise InputError(f"unknown command {token} at {position}; wanted {' '.join(sorted(COMMANDS))}")
                self._tokens.append((token, position))
            position = found.end()
        if len(self._tokens) > MAX_TOKENS:
            raise InputError(f"at most {MAX_TOKENS} symbols are wanted, got {len(self._tokens)}")
        self._at = 0
        self._depth = 0
        self._end = len(source)

    def statement(self) -> tuple[tuple[Expr, ...], Expr]:
        formulas = [self._formula()]
        while self._take(","):
            formulas.append(self._formula())
        if self._take(r"\vdash"):
            goal = self._formula()
        elif len(formulas) == 1:
            goal = formulas.pop()
        else:
            raise self._wanted(r"\vdash and a goal")
        if self._peek():
            raise self._wanted("the end")
        return tuple(part for item in formulas for part in (item.args if item.op == "and" else (item,))), goal

    def _formula(self) -> Expr:
        left = self._side(r"\lor", r"\vee")
        if self._take(r"\iff") or self._take(r"\Leftrightarrow"):
            return Expr("iff", left, self._side(r"\lor", r"\vee"))
        return left

    def _side(self, *joints: str) -> Expr:
        """Disjunctions of conjunctions, flat."""
        is_or = joints[0] == r"\lor"
        parts = [self._side(r"\land", r"\wedge") if is_or else self._atom()]
        while any(self._take(joint) for joint in joints):
            parts.append(self._side(r"\land", r"\wedge") if is_or else self._atom())
        op = "or" if is_or else "and"
        flat = [piece for part in parts for piece in (part.args if part.op == op else (part,))]
        return flat[0] if len(flat) == 1 else Expr(op, *flat)

    def _atom(self) -> Expr:
        if self._peek() != "(" or not self._brackets_hold_a_formula():
            return self._relation()
        self._take("(")
        inner = self._nested(self._formula)
        self._need(")")
        return inner

    def _brackets_hold_a_formula(self) -> bool:
        depth = 0
        for token, _ in self._tokens[self._at :]:
            depth += {"(": 1, ")": -1}.get(token, 0)
            if depth == 0:
                return False
            if token in RELATIONS or token in TURNED or token == r"\mid":
                return True
        return False

    def _relation(self) -> Expr:
        left = self._sum()
        if self._take(r"\mid"):
            if left.op != "num" or left.args[0].denominator != 1 or left.args[0] < 1:
                raise self._wanted(r"a whole number of at least 1 before \mid")
            return Expr("dvd", int(left.args[0]), self._sum())
        parts: list[Expr] = []
        while (token := self._peek()) in RELATIONS or token in TURNED:
            self._at += 1
            right = self._sum()
            parts.append(Expr(TURNED[token], right, left) if token in TURNED else Expr(RELATIONS[token], left, right))
            left = right
        if not parts:
            raise self._wanted(r"a relation (= \ne < > \le \ge \mid)")
        return parts[0] if len(parts) == 1 else Expr("and", *parts)

    def _sum(self) -> Expr:
        sign = self._peek()
        self._at += sign in ("+", "-")
        total = self._product()
        if sign == "-":
            total = _negated(total)
        while (token := self._peek()) in ("+", "-"):
            self._at += 1
            part = self._product()
            total = Expr("add", total, part if token == "+" else _negated(part))
        return total

    def _product(self) -> Expr:
        total = self._power()
        while True:
            if self._take("/"):
                total = _divided(total, self._power())
            elif any(self._take(sign) for sign in PRODUCT) or self._starts_base():
                total = Expr("mul", total, self._power())
            else:
                return total

    def _starts_base(self) -> bool:
        token = self._peek()
        return token in ("(", r"\frac", r"\dfrac") or (token.isalpha() and len(token) == 1)

    def _power(self) -> Expr:
        base = self._base()
        if not self._take("^"):
            return base
        is_braced = self._take("{")
        token = self._peek()
        if not token.isdigit() or int(token) > MAX_POWER or (not is_braced and len(token) > 1):
            raise self._wanted(f"an exponent from 0 to {MAX_POWER}")
        self._at += 1
        if is_braced:
            self._need("}")
        return Expr("pow", base, int(token))

    def _base(self) -> Expr:
        token = self._peek()
        if token.isdigit():
            self._at += 1
            return num(int(token))
        if token in VARIABLES:
            self._at += 1
            return var(token)
        if self._take("("):
            inner = self._nested(self._sum)
            self._need(")")
            return inner
        if self._take(r"\frac") or self._take(r"\dfrac"):
            sides = []
            for _ in range(2):
                self._need("{")
                sides.append(self._nested(self._sum))
                self._need("}")
            return _divided(*sides)
        raise self._wanted(f"a number, a bracket or a variable ({' '.join(VARIABLES)})")

    def _nested(self, read: Callable[[], Expr]) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InputError(f"at most {MAX_DEPTH} nested brackets are wanted")
        found = read()
        self._depth -= 1
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        is_here = self._peek() == token
        self._at += is_here
        return is_here

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._wanted(repr(token))

    def _wanted(self, what: str) -> InputError:
        seen, position = self._tokens[self._at] if self._at < len(self._tokens) else ("the end", self._end)
        return InputError(f"{what} is wanted, got {seen} at {position}")


def _negated(term: Expr) -> Expr:
    return num(-term.args[0]) if term.op == "num" else Expr("mul", num(-1), term)


def _divided(top: Expr, bottom: Expr) -> Expr:
    """A quotient of whole numbers is a number."""
    if top.op == bottom.op == "num" and bottom.args[0]:
        return num(Fraction(top.args[0], bottom.args[0]))
    return Expr("div", top, bottom)
