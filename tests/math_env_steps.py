"""Kernel theorems that certificates find hard: divisors in divisors, literals, integers, closed formulas."""

from fractions import Fraction

from math_env import kernel
from math_env.kernel import assume
from math_env.terms import FALSE, Expr, num, var
from tests.math_env_terms import add, div, mul, rel

X, Y, U, N, M, K = map(var, ("x", "y", "u", "n", "m", "k"))


def dvd(modulus, term):
    return Expr("dvd", modulus, term)


def _steps():
    two, minus_two = add(num(1), 1), add(num(1), -3)  # divisors that are numbers, but no literals
    fractions = rel("eq", div(5, X), div(3, add(X, 2)))
    nested = rel("eq", div(1, div(X, Y)), 3)
    hole = rel("eq", div(add(mul(X, Y), mul(-1, Y)), add(X, -1)))
    cubic = add(mul(mul(N, N), mul(N, K)), mul(7, K))
    is_three, odd = assume(dvd(5, add(N, -3))), add(mul(2, M), 1)
    at_five = rel("eq", div(5, num(-5)), div(3, add(num(-5), 2)))
    false, undefined = rel("eq", num(1), 2), rel("eq", num(1), div(1, 0))
    return [
        kernel.rewrite(assume(rel("eq", X, -5)), kernel.decide(at_five), fractions),
        kernel.substitute(assume(rel("eq", X, -5)), assume(fractions)),
        kernel.substitute(assume(rel("eq", X, Y)), assume(fractions)),
        kernel.to_zero(assume(nested)),
        kernel.defined(assume(nested), 0),
        kernel.to_zero(assume(rel("ne", div(X, add(Y, 1)), div(1, X)))),
        kernel.ring(rel("eq", div(1, div(X, Y)), div(Y, X)), assume(rel("ne", X)), assume(rel("ne", Y))),
        kernel.ring(rel("eq", div(1, div(X, 2)), div(2, X)), assume(rel("ne", mul(3, X)))),
        kernel.restate(assume(rel("ge", X, 1)), rel("gt", div(X, two), 0)),
        kernel.to_zero(assume(rel("ge", div(X, minus_two), 1))),
        kernel.solve_linear(assume(rel("eq", div(X, minus_two), Y)), "x"),
        kernel.cancel(assume(hole), kernel.defined(assume(hole), 0), Y),
        kernel.zero_product(assume(rel("eq", mul(mul(Expr("pow", X, 3), add(X, 1)), div(X, Y))))),
        kernel.clash(assume(rel("eq", div(X, Y), 1)), assume(rel("ne", mul(2, X), mul(2, Y)))),
        kernel.multiply(assume(rel("ge", X, 1)), assume(rel("ge", Y, 2))),
        kernel.undeclare(kernel.restate(assume(rel("eq", X)), rel("eq", mul(3, X))), "u", div(X, two)),
        kernel.undeclare(kernel.substitute(assume(rel("eq", U, mul(X, X))), kernel.square_nonneg(U)), "u", mul(X, X)),
        kernel.substitute(assume(rel("eq", N, add(mul(3, M), 1))), assume(dvd(3, add(mul(N, N), -1)))),
        kernel.rewrite(assume(rel("eq", N, odd)), assume(dvd(2, add(mul(odd, odd), -1))), dvd(2, add(mul(N, N), -1))),
        kernel.substitute(assume(rel("eq", N, num(Fraction(1, 2)))), assume(dvd(2, mul(2, N)))),
        kernel.reduce(is_three, assume(dvd(5, cubic))),
        kernel.unreduce(is_three, assume(dvd(5, mul(4, K))), dvd(5, cubic)),
        kernel.absurd(assume(dvd(2, add(mul(4, N), 3))), rel("eq", X, 1)),
        kernel.decide(Expr("iff", false, dvd(3, num(4)))),
        kernel.decide(Expr("iff", undefined, Expr("and", rel("eq", num(1), 1), rel("ge", num(1), 2)))),
        kernel.decide(Expr("iff", Expr("iff", false, rel("eq", num(1), 1)), FALSE)),
        kernel.decide(Expr("or", false, Expr("and", rel("ne", div(1, two), 1), dvd(4, Expr("pow", num(2), 5))))),
    ]


STEPS = _steps()
