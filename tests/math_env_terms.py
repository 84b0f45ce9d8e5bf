"""Short ways to write terms in tests: numbers may stand in the place of terms."""

from math_env.terms import Expr, num


def term(part):
    return part if isinstance(part, Expr) else num(part)


def add(first, *others):
    total = first
    for part in others:
        total = Expr("add", total, term(part))
    return total


def mul(a, b):
    return Expr("mul", term(a), b)


def div(a, b):
    return Expr("div", term(a), term(b))


def rel(op, a, b=0):
    return Expr(op, term(a), term(b))
