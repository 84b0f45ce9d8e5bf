"""Statements in LaTeX: what is read, what is refused and where, and that a custom problem can be played."""

import pytest

from common.errors import InputError
from math_env.env import MathEnv
from math_env.latex import custom
from math_env.rules import INDEX
from math_env.tokens import show

READ = [
    (r"x^2 - 5x + 6 = 0 \iff x = 2 \lor x = 3", "x^2 - 5*x + 6 = 0 <=> x = 2 or x = 3"),
    (r"x > 0, x^2 = 4 \vdash x = 2", "x > 0, x^2 = 4 |- x = 2"),
    (r"\frac{x^2-1}{x-1} = \frac{1}{2} \vdash x \neq 1", "(x^2 - 1)/(x - 1) = 1/2 |- x != 1"),
    (r"2 \mid n^{2} \vdash 2 \mid n", "2 | n^2 |- 2 | n"),
    (r"x \le y < 3 \vdash 3 > x", "y >= x, 3 > y |- 3 > x"),
    (r"2\left(x + 1\right)(x - 1) \cdot y / 3 \geq -4", "(2*(x + 1)*(x - 1)*y)/3 >= -4"),
    (r"(x = 1 \lor x = 2) \land y = 1 \vdash x + y \ge 2", "x = 1 or x = 2, y = 1 |- x + y >= 2"),
    (r"-x^2 = -3x", "-x^2 = -3*x"),
]
REFUSED = [
    (r"\sqrt{x} = 2", "unknown command .sqrt at 0"),
    (r"a + b = 2", "variable .* is wanted, got a at 0"),
    (r"x^2 +", "got the end at 5"),
    (r"x^{y} = 1", "an exponent from 0 to 8 is wanted, got y at 3"),
    (r"x^9 = 1", "an exponent"),
    (r"x + 1", "a relation"),
    (r"2 \mid x", "no integer polynomial"),
    (r"y \mid n", "a whole number"),
    (r"0.5x = 1", "a character of the subset is wanted, got '.' at 1"),
    (r"x = 1, y = 2", "vdash and a goal"),
    (r"x = 1 \vdash y = 2 \vdash z = 3", "the end is wanted"),
    (r"(x + 1 = 2", r"'\)' is wanted"),
    (r"x = 10000", "96 tokens"),
    ("x = 1 " * 400, "characters"),
    ("(" * 200 + "x", "nested brackets"),
    ("x+" * 400 + "x = 1", "300 symbols"),
    (r"__import__('os').system('true') = 0", "a character"),
    ("", "is wanted, got the end"),
]


@pytest.mark.parametrize(("statement", "shown"), READ)
def test_the_subset_is_read(statement, shown):
    text = custom(statement).text
    assert text == (shown if "|-" in shown else f"|- {shown}")


@pytest.mark.parametrize(("statement", "message"), REFUSED)
def test_anything_else_is_refused_in_one_line(statement, message):
    with pytest.raises(InputError, match=message) as error:
        custom(statement)
    assert "\n" not in str(error.value)


def test_a_custom_problem_is_played_to_its_proof():
    env = MathEnv()
    statement = r"x^2 = 4, x > 0 \vdash x = 2"
    _, info = env.reset(seed=0, options={"problem": statement})
    assert info["topic"] == "custom"
    names = ["factor(f0)", "zero_product(f2)", "split_case(f3)"]
    closing = ["solve_linear(f3,x)", "substitute(f4,f1)", "conclude(f5)", "solve_linear(f3,x)", "conclude(f4)"]
    rewards = []
    for name in names:
        rewards.append(env.step(INDEX[name])[1])
    first = show(env.state.goal.facts[3].concl)
    assert first in ("x - 2 = 0", "x + 2 = 0")
    for name in closing if first == "x + 2 = 0" else closing[3:] + closing[:3]:
        rewards.append(env.step(INDEX[name])[1])
    assert rewards == [0.0] * 7 + [1.0]
    with pytest.raises(InputError, match="scripted proof is wanted"):
        env.reset(options={"problem": statement, "prefix": 1})
    with pytest.raises(InputError, match="LaTeX statement is wanted"):
        env.reset(options={"problem": 3})
