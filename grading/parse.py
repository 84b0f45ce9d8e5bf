"""A small grammar of answers in LaTeX and plain math: text to a tree of tuples. Nothing is evaluated.

Expression nodes: ("num", p, q), ("sym", name), ("const", "pi" | "e" | "i" | "inf"), ("add" | "mul", items),
("div" | "pow" | "binom", a, b), ("neg", a), ("func", name, a), ("root", a, n), ("log", base, a), ("fact", a),
("pm", a, b), ("pick", "max" | "min" | "gcd" | "lcm", items), ("sum", name, low, high, term).
Structures: ("list" | "set" | "tuple" | "union" | "ratio", items), ("interval", low, high, low closed, high closed),
("rel", op, a, b), ("named", name, a), ("matrix", rows), ("det", rows), ("base", digits, base), ("text", words),
("clock", minutes, "am" | "pm" | ""), ("reals",).
"""

from __future__ import annotations

import re

from grading.normalise import FUNCTION_WORDS
from grading.numerals import Node, ParseError, TooDeep, decimal_value, is_proper, number_node, repeating_value
from grading.reader import Reader

__all__ = ["ExpressionParser", "Node", "ParseError", "TooDeep"]

MAX_DEPTH = 40
"""Nesting allowed in an answer; deeper ones are beyond the checker's limits."""


_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+(?![A-Za-z\d]))?")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{(\d+)\}")
_DEGREES = re.compile(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_TEXT_COMMANDS = frozenset(["text", "mathrm", "textrm", "mbox", "textbf", "textit", "rm", "operatorname"])
GREEK_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho "
    "sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell "
)
_GREEK = frozenset(GREEK_NAMES.split())
_FUNCTIONS = FUNCTION_WORDS - {"max", "min", "gcd", "lcm", "sqrt", "log"}
_PICKS = ("max", "min", "gcd", "lcm")
_OPEN = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "|": "|"}


class ExpressionParser(Reader):
    """Recursive descent over one expression."""

    def parse(self) -> Node:
        node = self.sum()
        self.space()
        if self.at != len(self.text):
            raise ParseError(f"cannot read {self.text[self.at : self.at + 20]!r}")
        return node

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeep("nested too deeply")
        sign = self.take("+", "-", "\\pm", "\\mp")
        first = self.product()
        node = {None: first, "+": first, "-": ("neg", first)}.get(sign, ("pm", ("num", 0, 1), first))
        terms = [node]
        while (sign := self.take("+", "-", "\\pm", "\\mp")) is not None:
            term = self.product()
            if sign in "+-":
                terms.append(term if sign == "+" else ("neg", term))
            else:
                term = term if sign == "\\pm" else ("neg", term)
                terms = [("pm", ("add", tuple(terms)) if len(terms) > 1 else terms[0], term)]
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("add", tuple(terms))

    def product(self) -> Node:
        node = self.signed_power()
        while True:
            if self.take("\\times", "\\cdot", "\\ast", "*"):
                node = ("mul", (node, self.signed_power()))
            elif self.take("/", "\\div"):
                node = ("div", node, self.signed_power())
            elif self.starts_factor():
                was_number, start = node[0] == "num", self.at
                factor = self.power()
                if was_number and self.text[start : start + 1].isdigit():
                    node = self.mixed(node, factor)
                elif was_number and self.text.startswith("\\frac", start) and is_proper(factor) and node[2] == 1:
                    node = ("num", node[1] * factor[2][1] + factor[1][1], factor[2][1])
                else:
                    node = ("mul", (node, factor))
            else:
                return node

    def mixed(self, whole: Node, numerator: Node) -> Node:
        """Read "11 5/6"; two numbers side by side mean nothing else."""
        if numerator[0] == "num" and whole[2] == numerator[2] == 1 and self.take("/"):
            denominator = self.power()
            if denominator[0] == "num" and denominator[2] == 1 and 0 < numerator[1] < denominator[1]:
                return ("num", whole[1] * denominator[1] + numerator[1], denominator[1])
        raise ParseError("two numbers side by side")

    def signed_power(self) -> Node:
        if self.take("-"):
            return ("neg", self.signed_power_checked())
        self.take("+")
        return self.power()

    def signed_power_checked(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeep("nested too deeply")
        node = self.signed_power()
        self.depth -= 1
        return node

    def starts_factor(self) -> bool:
        self.space()
        rest = self.text[self.at : self.at + 1]
        if rest == "\\":
            command = _COMMAND.match(self.text, self.at)
            return command is not None and (
                command[1] in _GREEK
                or command[1] in _FUNCTIONS
                or command[1] in _PICKS
                or command[1]
                in ("frac", "sqrt", "pi", "log", "infty", "binom", "mathrm", "text", "lfloor", "lceil", "sum")
            )
        return rest != "" and ((rest.isascii() and rest.isalnum()) or rest in "([{.")

    def power(self) -> Node:
        base = self.atom()
        while True:
            if _DEGREES.match(self.text, self.at):
                self.at = _DEGREES.match(self.text, self.at).end()  # type: ignore[union-attr]
                base = ("div", ("mul", (base, ("const", "pi"))), ("num", 180, 1))
            elif self.take("^"):
                base = ("pow", base, self.exponent())
            elif self.take("!"):
                base = ("fact", base)
            elif self.take("%"):
                base = ("div", base, ("num", 100, 1))
            else:
                return base

    def exponent(self) -> Node:
        self.space()
        is_braced = self.text.startswith("{", self.at)
        is_negative = not is_braced and self.take("-") is not None
        node = self.group() if is_braced else self.atom()
        if not is_braced and self.take("^"):  # a^b^c is a^(b^c)
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise TooDeep("nested too deeply")
            node = ("pow", node, self.exponent())
            self.depth -= 1
        return ("neg", node) if is_negative else node

    def group(self) -> Node:
        r"""Read one TeX argument: {...}, one digit, one letter or one command."""
        self.space()
        if self.take("{"):
            node = self.sum()
            if self.take("\\over"):
                node = ("div", node, self.sum())
            elif self.take("\\choose"):
                node = ("binom", node, self.sum())
            if not self.take("}"):
                raise ParseError("a brace is not closed")
            return node
        character = self.text[self.at : self.at + 1]
        if character.isdigit():
            self.at += 1
            return ("num", int(character), 1)
        return self.atom()

    def atom(self) -> Node:
        self.space()
        text, at = self.text, self.at
        character = text[at : at + 1]
        repeating = _REPEATING.match(text, at)
        if repeating:
            self.at = repeating.end()
            return number_node(repeating_value(*repeating.groups()))
        number = _NUMBER.match(text, at)
        if number:
            self.at = number.end()
            if text[self.at : self.at + 1] == "_":
                raise ParseError("a number with a subscript")
            return number_node(decimal_value(number.group()))
        if character == "{":
            return self.group()
        for opening in ("(", "[", "|"):
            if character == opening:
                return self.bracket(opening)
        if character == "\\":
            return self.command()
        if character.isascii() and character.isalpha():
            return self.word()
        raise ParseError(f"cannot read {text[at : at + 20]!r}")

    def bracket(self, opening: str) -> Node:
        self.at += 1
        node = self.sum()
        if not self.take(_OPEN[opening]):
            raise ParseError(f"{opening!r} is not closed")
        return ("func", "abs", node) if opening == "|" else node

    def command(self) -> Node:
        match = _COMMAND.match(self.text, self.at)
        if match is None:
            raise ParseError(f"cannot read {self.text[self.at : self.at + 20]!r}")
        name, self.at = match[1], match.end()
        if name == "frac":
            return ("div", self.group(), self.group())
        if name == "binom":
            return ("binom", self.group(), self.group())
        if name == "sqrt":
            return self.root()
        if name == "pi":
            return ("const", "pi")
        if name == "infty":
            return ("const", "inf")
        if name in _TEXT_COMMANDS:
            inner = re.compile(r"\s*\{\s*([A-Za-z]+)\s*\}").match(self.text, self.at)
            if inner and (len(inner[1]) == 1 or inner[1] in FUNCTION_WORDS):
                self.at = inner.end()
                return self.named(inner[1])
            raise ParseError("text inside an expression")
        if name in ("lfloor", "lceil"):
            node = self.sum()
            if not self.take("\\r" + name[1:]):
                raise ParseError(f"\\{name} is not closed")
            return ("func", name[1:], node)
        if name in _PICKS:
            return self.pick(name)
        if name == "sum":
            return self.summation()
        if name in ("lvert", "vert"):
            node = self.sum()
            if not self.take("\\rvert", "\\vert"):
                raise ParseError("a bar is not closed")
            return ("func", "abs", node)
        if name in _FUNCTIONS or name == "log":
            return self.function(name)
        if name in _GREEK:
            return self.symbol(name)
        raise ParseError(f"\\{name} is not known")

    def pick(self, name: str) -> Node:
        """Read the arguments of max, min, gcd, lcm."""
        if not self.take("(", "\\{"):
            raise ParseError(f"{name} without arguments")
        items = [self.sum()]
        while self.take(","):
            items.append(self.sum())
        if not self.take(")", "\\}"):
            raise ParseError(f"the arguments of {name} are not closed")
        return ("pick", name, tuple(items))

    def summation(self) -> Node:
        """Read ``_{k=1}^{n} term``."""
        name = re.compile(r"\s*_\s*\{\s*([A-Za-z])\s*=").match(self.text, self.at)
        if name is None:
            raise ParseError("a sum without bounds")
        self.at = name.end()
        low = self.sum()
        if not (self.take("}") and self.take("^")):
            raise ParseError("a sum without bounds")
        high = self.exponent()
        return ("sum", name[1], low, high, self.product())

    def root(self) -> Node:
        index: Node = ("num", 2, 1)
        self.space()
        if self.take("["):
            index = self.sum()
            if not self.take("]"):
                raise ParseError("the index of a root is not closed")
        return ("root", self.group(), index)

    def word(self) -> Node:
        match = re.compile(r"[A-Za-z]+").match(self.text, self.at)
        assert match is not None
        word = match.group()
        for name in ("infinity", "inf", "pi", "sqrt", "log", *_PICKS, *sorted(_FUNCTIONS, key=len, reverse=True)):
            if word == name or (word.startswith(name) and len(name) > 2 and name != "inf"):
                self.at += len(name)
                return self.named(name)
        if len(word) > 3:
            raise ParseError(f"{word!r} is a word")
        self.at += 1
        return self.named(word[0])

    def named(self, name: str) -> Node:
        if name in ("e", "i", "pi"):
            return ("const", name)
        if name in ("infinity", "inf"):
            return ("const", "inf")
        if name == "sqrt":
            return self.root()
        if name in _FUNCTIONS or name == "log":
            return self.function(name)
        if name in _PICKS:
            return self.pick(name)
        return self.symbol(name)

    def symbol(self, name: str) -> Node:
        subscript = re.compile(r"\s*_\s*(?:\{([^{}]*)\}|(\w))").match(self.text, self.at)
        if subscript:
            self.at = subscript.end()
            inner = subscript[1] if subscript[1] is not None else subscript[2]
            name = f"{name}_{''.join(inner.split())}"
        primes = re.compile(r"'+").match(self.text, self.at)
        if primes:
            self.at = primes.end()
            name += primes.group()
        return ("sym", name)

    def function(self, name: str) -> Node:
        base: Node | None = None
        if name == "log" and self.take("_"):
            base = self.group()
        power = self.exponent() if self.take("^") else None
        self.space()
        if self.text[self.at : self.at + 1] in ("(", "[", "{"):
            argument = self.atom()
        else:
            argument = self.power()
            while self.starts_factor() and not self.peek("\\sin", "\\cos", "\\tan", "\\log", "\\ln", "("):
                argument = ("mul", (argument, self.power()))
        if power == ("neg", ("num", 1, 1)) and name in ("sin", "cos", "tan"):
            return ("func", "arc" + name, argument)
        node: Node = ("log", base, argument) if base else ("func", "ln" if name == "log" else name, argument)
        return node if power is None else ("pow", node, power)
