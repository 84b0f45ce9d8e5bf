"""Whole-number arithmetic as people do it: exact, or shaped by a habit of the catalogue."""

from __future__ import annotations

from data_gen.synthetic.habits import Stuck, Worksheet

TOO_LARGE = 199
"""Work on wrong values stops when a value's magnitude passes this; right values stay far below."""


def exact(left: int, op: str, right: int) -> int:
    """Return ``left op right`` for op in ``+ - *``."""
    if op == "+":
        return left + right
    return left - right if op == "-" else left * right


def compute(sheet: Worksheet, left: int, op: str, right: int) -> int:
    """Return ``left op right``, or the value that a habit of signs, carries or tables gives."""
    value = exact(left, op, right)
    if op == "*":
        if 6 <= left <= 9 and 6 <= right <= 9 and sheet.fires("table_slip"):
            return value + (left if sheet.variant(2) else -left)
        return value
    if right < 0:
        return value
    if left < 0:
        return exact(left, "-" if op == "+" else "+", right) if sheet.fires("sign_slip_sum") else value
    if value < 0:
        return -value if sheet.fires("sign_slip_difference") else value
    if op == "+" and left % 10 + right % 10 >= 10 and sheet.fires("lost_carry"):
        return value - 10
    if op == "-" and left % 10 < right % 10 and sheet.fires("lost_borrow"):
        return value + 10
    return value


def read(sheet: Worksheet, number: int) -> int:
    """Return a number of the problem as it is read: itself, or misread (last digit one off, two digits swapped)."""
    if number < 1 or not sheet.fires("misread"):
        return number
    variant = sheet.variant(3)
    swapped = int(str(number)[::-1])
    if variant == 2 and 10 <= number <= 99 and swapped not in (number, number // 10):
        return swapped
    up = number % 10 < 9 and (variant != 0 or number % 10 == 0)
    return number + 1 if up else number - 1


def operand(value: int) -> str:
    """Return ``value`` as the right operand of a step: a negative one stands in brackets."""
    return f"({value})" if value < 0 else str(value)


def write_operation(sheet: Worksheet, left: int, op: str, right: int) -> int:
    """Write the step ``left op right = value`` and return the value; raise ``Stuck`` when it grew too large."""
    value = compute(sheet, left, op, right)
    sheet.write(f"{left}{op}{operand(right)}={value}")
    if abs(value) > TOO_LARGE:
        raise Stuck(str(value))
    return value
