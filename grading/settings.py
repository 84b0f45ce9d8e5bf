"""The conventions of a comparison that a benchmark may set otherwise; `docs/grading.md` lists them."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args, get_type_hints

from common.errors import InputError


@dataclasses.dataclass(frozen=True)
class GradingSettings:
    """What counts as the same answer where that is convention and not mathematics.

    Attributes:
        percent: ``either``: 50% equals 0.5, and 50 when the other side has no percent sign; ``exact``: 50% equals 0.5
            only; ``ignore``: the sign says nothing, 50% equals 50 only.
        units: ``shared``: compared, after conversion, only when both sides name a known one; ``ignore``: never
            compared; ``required``: both sides name the same quantity, or neither names one.
        sets: ``unordered``: a list "a, b" has no order and no repeats; ``ordered``: it is compared like (a, b). Braces
            always write a set.
        mixed_numbers: ``sum``: 2\\frac{1}{2} is 5/2; ``product``: it is 1.
        rounding_digits: a decimal of at least so many significant digits that is the correctly rounded value counts
            as it; 0: none does.
        relative_tolerance, absolute_tolerance: numbers x and y are equal when |x - y| is at most
            relative_tolerance * max(|x|, |y|) or at most absolute_tolerance; 0 and 0: exact.
    """

    percent: Literal["either", "exact", "ignore"] = "either"
    units: Literal["shared", "ignore", "required"] = "shared"
    sets: Literal["unordered", "ordered"] = "unordered"
    mixed_numbers: Literal["sum", "product"] = "sum"
    rounding_digits: int = 15
    relative_tolerance: float = 0.0
    absolute_tolerance: float = 0.0

    def __post_init__(self) -> None:
        """Raise InputError for a value that is none of the choices."""
        for name, choices in setting_choices().items():
            if getattr(self, name) not in choices:
                raise InputError(f"grading setting {name}: {getattr(self, name)!r}, want one of {', '.join(choices)}")
        if not isinstance(self.rounding_digits, int) or self.rounding_digits < 0:
            raise InputError(f"grading setting rounding_digits: {self.rounding_digits!r}, want an integer of 0 or more")
        for name in ("relative_tolerance", "absolute_tolerance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InputError(f"grading setting {name}: {value!r}, want a number of 0 or more")

    @property
    def is_exact(self) -> bool:
        """True when numbers must be equal, not close."""
        return self.relative_tolerance == 0 == self.absolute_tolerance


def setting_choices() -> dict[str, tuple[str, ...]]:
    """Return the choices of every setting that has a list of them."""
    return {name: get_args(hint) for name, hint in get_type_hints(GradingSettings).items() if get_args(hint)}


DEFAULT = GradingSettings()
