"""SymPy objects of expression trees, as the worker builds them."""

import pytest
import sympy

from grading.symbolic import build

X = sympy.Symbol("x", real=True)


def times_x(*numbers):
    return tuple(("mul", (("num", number, 1), ("sym", "x"))) for number in numbers)


@pytest.mark.parametrize(
    ("name", "numbers", "wanted"),
    [
        ("gcd", (12, 18, 8), 2 * X),
        ("gcd", (12, 18), 6 * X),
        ("lcm", (4, 6, 9), 36 * X),
        ("lcm", (4, 6), 12 * X),
    ],
)
def test_divisors_and_multiples_of_any_number_of_expressions(name, numbers, wanted):
    assert build(("pick", name, times_x(*numbers))) == wanted


def test_largest_and_smallest_of_three():
    items = tuple(("num", number, 1) for number in (3, 7, 5))
    assert (build(("pick", "max", items)), build(("pick", "min", items))) == (7, 3)
