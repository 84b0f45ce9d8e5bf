"""The action space: index -> (schema, parameters), fixed for ever; what each does to a proof state.

A state is a stack of open goals and of joins that wait for the theorems of the goals above them. A fact is a kernel
theorem whose hypotheses are those of its goal. An action is valid when its kernel rule applies and its result is new
and fits the observation (FACTS facts, tokens.LENGTH tokens a formula). `masks` says quickly which actions are.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from math_env import kernel, search, terms
from math_env.kernel import Theorem
from math_env.terms import Expr, Refused
from math_env.tokens import row

FACTS = 12
"""Facts a goal can hold."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """Prove `target` from `facts`."""

    facts: tuple[Theorem, ...]
    target: Expr


@dataclasses.dataclass(frozen=True)
class Join:
    """When its `count` goals are proved: RULES[rule](*before, *their theorems, *after)."""

    rule: str
    before: tuple[Any, ...]
    count: int
    after: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class State:
    """Open work (top last), finished theorems that joins will take, and the state before the last action."""

    work: tuple[Goal | Join, ...]
    proved: tuple[Theorem, ...] = ()
    past: State | None = dataclasses.field(default=None, compare=False)

    @property
    def goal(self) -> Goal | None:
        """The goal in work; None when everything is proved."""
        top = self.work[-1] if self.work else None
        return top if isinstance(top, Goal) else None

    @property
    def theorem(self) -> Theorem | None:
        return self.proved[0] if not self.work else None


def start(hypotheses: tuple[Expr, ...], target: Expr) -> State:
    return State((Goal(tuple(kernel.assume(hypothesis) for hypothesis in hypotheses), target),))


# ---------------------------------------------------------------- facts from facts


def _factor(f: Theorem) -> Theorem:
    atom = kernel.to_zero(f)
    return kernel.factor_as(atom, search.factored(terms.poly(atom.concl.args[0])))


def _cancel(f: Theorem, g: Theorem) -> Theorem:
    p, q = (terms.poly(kernel.to_zero(t).concl.args[0]) for t in (f, g))
    return kernel.cancel(f, g, terms.term_of(terms.primitive(search.quotient(p, q))))


def _slots(count: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(FACTS), count))


def _pairs() -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(FACTS), 2))


SCALES = (Fraction(-1), Fraction(2), Fraction(3), Fraction(1, 2), Fraction(5))
SQUARE_SHIFTS = (-3, -2, -1, 1, 2, 3)
SQUARE_VARIABLES = ("x", "y", "z")
MODULI = (2, 3, 4, 5)


def _square_bases() -> dict[str, Expr]:
    bases = {name: terms.var(name) for name in SQUARE_VARIABLES}
    for name, shift in itertools.product(SQUARE_VARIABLES, SQUARE_SHIFTS):
        bases[f"{name}{shift:+d}"] = Expr("add", terms.var(name), terms.num(shift))
    for (name, other), shift in itertools.product(itertools.combinations(SQUARE_VARIABLES, 2), SQUARE_SHIFTS):
        second = Expr("mul", terms.num(shift), terms.var(other))
        bases[f"{name}{shift:+d}{other}"] = Expr("add", terms.var(name), second)
    return bases


SQUARES = _square_bases()
DECLARED = terms.var("u")
"""The variable that `declare` gives a meaning."""
SHIFTED = [base for base in SQUARES if base not in SQUARE_VARIABLES]


@dataclasses.dataclass(frozen=True)
class Schema:
    """A family of actions with one meaning.

    Attributes:
        name, family, doc: shown in the action table.
        parameters: every parameter tuple, in the order of the indices.
        facts: how many leading parameters are fact slots.
        make: for actions that add a fact: (facts..., other parameters...) -> theorem.
        goal: for actions on the goal in work: (goal, facts..., other parameters...) -> what replaces it: open work
            or the theorem that closes it.
        names: the variables that must occur in the goal in work, from the parameters (axioms, `declare`).
    """

    name: str
    family: str
    doc: str
    parameters: list[tuple[Any, ...]]
    facts: int = 0
    make: Callable[..., Theorem] | None = None
    goal: Callable[..., tuple[Goal | Join, ...] | Theorem] | None = None
    names: Callable[..., frozenset[str]] | None = None


# ---------------------------------------------------------------- actions on the goal


def _unequal(goal: Goal) -> list[Theorem]:
    return [fact for fact in goal.facts if fact.concl.op == "ne"]


def _ring(goal: Goal) -> Theorem:
    return kernel.ring(goal.target, *_unequal(goal))


def _decide(goal: Goal) -> Theorem:
    return kernel.decide(goal.target)


def _rewrite_goal(goal: Goal, f: Theorem) -> tuple[Goal | Join, ...]:
    if f.concl.op != "eq" or f.concl.args[0].op != "var":
        raise Refused("no equation v = t")
    name, term = f.concl.args[0].args[0], f.concl.args[1]
    after = terms.substituted(goal.target, name, term)
    if after == goal.target or name in terms.variables(term):
        raise Refused("nothing changes")
    terms.poly(term)
    return Join("rewrite", (f,), 1, (goal.target,)), Goal(goal.facts, after)


def _reduce_goal(goal: Goal, f: Theorem) -> tuple[Goal | Join, ...]:
    after = kernel.reduce(f, kernel.assume(goal.target)).concl
    return Join("unreduce", (f,), 1, (goal.target,)), Goal(goal.facts, after)


def _declare(goal: Goal, base: str) -> tuple[Goal | Join, ...]:
    name, term = DECLARED.args[0], SQUARES[base]
    if name in occurring(goal):
        raise Refused(f"{name} has a meaning already")
    fact = kernel.assume(Expr("eq", DECLARED, term))
    return Join("undeclare", (), 1, (name, term)), Goal((*goal.facts, fact), goal.target)


def _split_goal(goal: Goal) -> tuple[Goal | Join, ...]:
    target = goal.target
    if target.op == "and":
        parts = [Goal(goal.facts, part) for part in target.args]
        return Join("conj_intro", (), len(parts), ()), *reversed(parts)
    if target.op != "iff":
        raise Refused("the goal is neither an equivalence nor a conjunction")
    left, right = target.args
    goals = [Goal(goal.facts + _unpacked(kernel.assume(a)), b) for a, b in ((left, right), (right, left))]
    return Join("iff_intro", (), 2, (left, right)), *reversed(goals)


def _unpacked(fact: Theorem) -> tuple[Theorem, ...]:
    if fact.concl.op != "and":
        return (fact,)
    return tuple(kernel.conj_elim(fact, index) for index in range(len(fact.concl.args)))


def _split_case(goal: Goal, f: Theorem) -> tuple[Goal | Join, ...]:
    if f.concl.op != "or":
        raise Refused("the fact is no disjunction")
    others = tuple(fact for fact in goal.facts if fact is not f)
    goals = [Goal(others + _unpacked(kernel.assume(part)), goal.target) for part in f.concl.args]
    return Join("cases", (f,), len(goals), ()), *reversed(goals)


def _conclude(goal: Goal, f: Theorem) -> Theorem:
    for attempt in (_same, _member, kernel.restate, kernel.absurd):
        try:
            return attempt(f, goal.target)
        except Refused:
            continue
    raise Refused("the goal does not follow from this fact")


def _same(f: Theorem, target: Expr) -> Theorem:
    if f.concl != target:
        raise Refused("another formula")
    return f


def _member(f: Theorem, target: Expr) -> Theorem:
    return kernel.disj_intro(f, target)


def _clash(goal: Goal, f: Theorem, g: Theorem) -> Theorem:
    return kernel.absurd(kernel.clash(f, g), goal.target)


ONE_FACT, TWO_FACTS = _slots(1), _slots(2)
AXIOM, THEOREM, VARIABLE, CONTROL = "axiom application", "theorem application", "variable operations", "control"
SCHEMAS = [
    Schema("ring", AXIOM, "close a = b: equal normal forms, divisors among the facts ≠ 0", [()], goal=_ring),
    Schema("decide", AXIOM, "close a true goal without variables", [()], goal=_decide),
    Schema(
        "square",
        AXIOM,
        "add t² ≥ 0 (the variables of t occur in the goal or the facts)",
        [(k,) for k in SQUARES],
        make=lambda base: kernel.square_nonneg(SQUARES[base]),
        names=lambda base: terms.variables(SQUARES[base]),
    ),
    Schema(
        "residues",
        AXIOM,
        "add m | v ∨ … ∨ m | v − (m − 1) (v occurs in the goal or the facts)",
        list(itertools.product(terms.INTEGER_VARIABLES, MODULI)),
        make=kernel.residues,
        names=lambda name, _: frozenset({name}),
    ),
    Schema("to_zero", THEOREM, "add the fact in the form P R 0", ONE_FACT, 1, make=kernel.to_zero),
    Schema("factor", THEOREM, "add P = 0 with P factored over the rationals", ONE_FACT, 1, make=_factor),
    Schema("zero_product", THEOREM, "A·B = 0: add A = 0 ∨ B = 0", ONE_FACT, 1, make=kernel.zero_product),
    Schema(
        "defined",
        THEOREM,
        "add Q ≠ 0 for the i-th divisor Q of the fact",
        [(f, i) for f in range(FACTS) for i in range(3)],
        1,
        make=kernel.defined,
    ),
    Schema("cancel", THEOREM, "f: Q·R = 0, g: Q ≠ 0: add R = 0", TWO_FACTS, 2, make=_cancel),
    Schema("add", THEOREM, "add the sum of two facts (=, ≥, > or m |)", _pairs(), 2, make=kernel.add),
    Schema("multiply", THEOREM, "add the product of two facts ≥ 0, > 0 or ≠ 0", _pairs(), 2, make=kernel.multiply),
    Schema(
        "scale",
        THEOREM,
        "add c times the fact (c > 0 for ≥, >)",
        list(itertools.product(range(FACTS), SCALES)),
        1,
        make=kernel.scale,
    ),
    Schema("reduce", THEOREM, "f: m | v − r, g: m | t: add m | t[v := r]", TWO_FACTS, 2, make=kernel.reduce),
    Schema(
        "solve_linear",
        VARIABLE,
        "add v = t from an equation linear in v",
        list(itertools.product(range(FACTS), terms.VARIABLES)),
        1,
        make=kernel.solve_linear,
    ),
    Schema("substitute", VARIABLE, "f: v = t: add g with t for v", TWO_FACTS, 2, make=kernel.substitute),
    Schema("rewrite_goal", VARIABLE, "f: v = t: put t for v in the goal", ONE_FACT, 1, goal=_rewrite_goal),
    Schema("reduce_goal", VARIABLE, "f: m | v − r: put r for v in a goal m | t", ONE_FACT, 1, goal=_reduce_goal),
    Schema("split_goal", CONTROL, "prove the parts of an ∧, the directions of a ⟺", [()], goal=_split_goal),
    Schema("split_case", CONTROL, "prove the goal in each case of a disjunction", ONE_FACT, 1, goal=_split_case),
    Schema("conclude", CONTROL, "close a goal that follows from the fact at once", ONE_FACT, 1, goal=_conclude),
    Schema("contradict", CONTROL, "f: P = 0, g: P ≠ 0: close any goal", TWO_FACTS, 2, goal=_clash),
    Schema("backtrack", CONTROL, "undo the last action", [()]),
    Schema(
        "declare",
        VARIABLE,
        "add u = t, u new (the variables of t occur in the goal or the facts)",
        [(k,) for k in SHIFTED],
        goal=_declare,
        names=lambda base: terms.variables(SQUARES[base]),
    ),
]
ACTIONS = [(schema, parameters) for schema in SCHEMAS for parameters in schema.parameters]
"""Index -> (schema, parameters)."""


def action_name(index: int) -> str:
    """Stable id: `cancel(f0,f2)`, `square(x-1)`, `scale(f1,1/2)`."""
    schema, parameters = ACTIONS[index]
    shown = [f"f{p}" if i < schema.facts else str(p) for i, p in enumerate(parameters)]
    return f"{schema.name}({','.join(shown)})"


OFFSETS = list(itertools.accumulate((len(schema.parameters) for schema in SCHEMAS), initial=0))[:-1]
"""Index of the first action of each schema."""
NAMES = [action_name(index) for index in range(len(ACTIONS))]
INDEX = {name: index for index, name in enumerate(NAMES)}
assert len(INDEX) == len(ACTIONS)


# ---------------------------------------------------------------- application


def apply(state: State, index: int) -> State:
    """The state after an action; Refused when it is not valid."""
    schema, parameters = ACTIONS[index]
    goal = state.goal
    if goal is None:
        raise Refused("nothing is open")
    if schema.name == "backtrack":
        if state.past is None:
            raise Refused("nothing to undo")
        return state.past
    if any(slot >= len(goal.facts) for slot in parameters[: schema.facts]):
        raise Refused("an empty fact slot")
    inputs = [goal.facts[slot] for slot in parameters[: schema.facts]] + list(parameters[schema.facts :])
    if schema.names and not schema.names(*parameters) <= occurring(goal):
        raise Refused("a variable that does not occur")
    if schema.make is not None:
        fact = schema.make(*inputs)
        _require_room(goal, fact.concl)
        return State((*state.work[:-1], Goal((*goal.facts, fact), goal.target)), state.proved, state)
    assert schema.goal is not None
    result = schema.goal(goal, *inputs)
    if isinstance(result, Theorem):
        return _closed(state, result)
    for item in result:
        if isinstance(item, Goal):
            _require_fit(item)
    return State((*state.work[:-1], *result), state.proved, state)


def occurring(goal: Goal) -> frozenset[str]:
    """The variables of the goal and its facts. No hypothesis of a fact has another one: facts are never dropped, but
    for the disjunction of `split_case`, and no other rule makes facts of one."""
    return terms.variables(goal.target).union(*(terms.variables(fact.concl) for fact in goal.facts))


def _require_room(goal: Goal, fact: Expr) -> None:
    if len(goal.facts) >= FACTS or row(fact) is None or any(fact == known.concl for known in goal.facts):
        raise Refused("the fact is not new or does not fit")


def _require_fit(goal: Goal) -> None:
    if len(goal.facts) > FACTS or row(goal.target) is None or any(row(fact.concl) is None for fact in goal.facts):
        raise Refused("the new goal does not fit")


def _closed(state: State, theorem: Theorem) -> State:
    """The goal in work is proved: run every join whose goals are all proved."""
    work, proved = list(state.work[:-1]), [*state.proved, theorem]
    while work and isinstance(join := work[-1], Join):
        work.pop()
        children = proved[len(proved) - join.count :]
        del proved[len(proved) - join.count :]
        proved.append(kernel.RULES[join.rule](*join.before, *children, *join.after))
    return State(tuple(work), tuple(proved), state)
