"""Exact masks, quickly: a state that has one fact more than the last looks at what the new fact allows only.

Whether an action is valid depends on the formulas of its premises and of the goal alone. `facts` holds what can be
said of a fact and of two, `Target` and `on_goal` what the goal adds, `Context` the facts of a goal together (bounded
LRU). Not trusted: a wrong bit could mislabel an action and never prove anything; the tests compare with trying every
action.
"""

from __future__ import annotations

import dataclasses
from functools import cache, lru_cache

import numpy as np

from math_env import kernel, rules, terms
from math_env.facts import (
    CACHED_FACTS,
    CACHED_PAIRS,
    FIRST,
    Fact,
    Result,
    atom,
    by_kernel,
    direction,
    fact_of,
    fitting,
    holds,
    pair,
    zero_form,
)
from math_env.rules import ACTIONS, FACTS, SCHEMAS, Goal, State
from math_env.sparse import Key
from math_env.terms import Expr
from math_env.tokens import row

CACHED_CONTEXTS = 1_000

# ---------------------------------------------------------------- the goal


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Target:
    """What the rules can see of a goal's formula.

    Attributes:
        is_formula: well-formed; a goal that `rewrite_goal` left is perhaps not, then nothing closes it.
        direction: as in Fact, None where `restate` is refused whatever the fact.
        is_identity: an equation with normal form 0 = 0; `ring` then asks for divisors only.
        is_decided: `decide` closes it.
        parts: facts that the larger side of an equivalence adds; 0 for a conjunction; None for anything else.
    """

    expr: Expr
    names: frozenset[str]
    is_formula: bool
    direction: Key | None
    is_identity: bool
    is_decided: bool
    parts: int | None


@lru_cache(maxsize=CACHED_FACTS)
def target_of(expr: Expr) -> Target:
    is_formula = holds(terms.check, expr)
    relation, p, _ = zero_form(expr) if is_formula else (None, {}, ())
    is_plain = relation is not None and not kernel._guards(expr)
    parts = max(map(_conjuncts, expr.args)) if expr.op == "iff" else 0 if expr.op == "and" else None
    return Target(
        expr,
        terms.variables(expr),
        is_formula,
        direction(p) if is_plain else None,
        relation == "eq" and not p,
        is_formula and holds(kernel.decide, expr),
        parts,
    )


def _conjuncts(expr: Expr) -> int:
    return len(expr.args) if expr.op == "and" else 1


@lru_cache(maxsize=CACHED_PAIRS)
def on_goal(f: Fact, target: Target) -> tuple[str, ...]:
    """The schemas with this fact as their only one that change or close the goal, `split_case` apart."""
    found = []
    if f.defines is not None and f.defines[0] in target.names:
        after = terms.substituted(target.expr, f.defines[0], f.expr.args[1])
        found += ["rewrite_goal"] * (row(after) is not None)
    if f.residue is not None and target.is_formula and target.expr.op == "dvd" and f.residue[1] in target.names:
        found += ["reduce_goal"] * (by_kernel("reduce", f.expr, target.expr) is not None)
    if target.is_formula:
        is_part = f.expr == target.expr or (target.expr.op == "or" and f.expr in target.expr.args)
        if f.is_absurd or is_part or _restates(f, target):
            found.append("conclude")
    return tuple(found)


def _restates(f: Fact, target: Target) -> bool:
    is_near = f.relation is not None and bool(f.direction) and target.direction in (f.direction, ())
    return is_near and holds(kernel.restate, kernel.assume(f.expr), target.expr)


# ---------------------------------------------------------------- facts together


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Context:
    """The facts of a goal, in slots.

    Attributes:
        made: index -> result of every action that adds a fact, new or not; the axioms apart.
        known: what is a fact already.
        clashes: indices of `contradict`.
        fresh: (actions,) bool, True where a result of `made` is new.
    """

    facts: tuple[Fact, ...]
    names: frozenset[str]
    made: dict[int, Result]
    known: frozenset[Result]
    clashes: tuple[int, ...]
    fresh: np.ndarray


@lru_cache(maxsize=CACHED_CONTEXTS)
def context_of(exprs: tuple[Expr, ...]) -> Context:
    """The context without its last fact, and what the last one adds."""
    if not exprs:
        return Context((), frozenset(), {}, frozenset(), (), np.zeros(len(ACTIONS), bool))
    before, new, slot = context_of(exprs[:-1]), fact_of(exprs[-1]), len(exprs) - 1
    known = before.known.union(new.results)
    clashes = list(before.clashes)
    for i, old in enumerate(before.facts):
        is_clash = old.primitive is not None and old.primitive == new.primitive
        if is_clash and {old.relation, new.relation} == {"eq", "ne"}:
            clashes.append(_at("contradict", i, slot) if old.relation == "eq" else _at("contradict", slot, i))
    made, fresh = {}, np.zeros(len(ACTIONS), bool)
    if len(exprs) < FACTS:
        made = dict(before.made)
        for first, step, result in new.alone:
            made[first + slot * step] = result
        for i, old in enumerate(before.facts):
            for name, is_flipped, result in pair(old, new):
                made[_at(name, slot, i) if is_flipped else _at(name, i, slot)] = result
        fresh[[index for index, result in made.items() if result not in known]] = True
    return Context((*before.facts, new), before.names | new.names, made, known, tuple(clashes), fresh)


@cache
def _at(name: str, i: int, j: int) -> int:
    """Index of an action on two facts."""
    schema = next(schema for schema in SCHEMAS if schema.name == name)
    return FIRST[name] + schema.parameters.index((i, j))


@cache
def _axioms(names: frozenset[str]) -> list[tuple[int, Result]]:
    """(index, result) of the axioms about these variables."""
    found: list[tuple[int, Result]] = []
    for schema in SCHEMAS:
        for position, parameters in enumerate(schema.parameters):
            if schema.make is not None and schema.names is not None and schema.names(*parameters) <= names:
                expr = schema.make(*parameters).concl
                relation, p, _ = zero_form(expr)
                found.append((FIRST[schema.name] + position, expr if relation is None else fitting(atom(relation, p))))
    return found


@cache
def _declarations(names: frozenset[str]) -> list[int]:
    """Indices of `declare` that are valid where these variables occur."""
    (schema,) = (schema for schema in SCHEMAS if schema.name == "declare")
    assert schema.names is not None
    if rules.DECLARED.args[0] in names:
        return []
    return [FIRST[schema.name] + i for i, item in enumerate(schema.parameters) if schema.names(*item) <= names]


def caches() -> dict[str, dict[str, float]]:
    """Of each bounded cache of the kernel and of the masks: share of look-ups that it answered, entries, their bound.

    A key is a formula or two, a value what the rules make of them: no entry goes stale.
    """
    found = {
        "check": terms.check, "normal_form": terms.ratio, "zero_form": kernel._zero_form, "facts": fact_of,
        "pairs": pair, "targets": target_of, "on_goal": on_goal, "contexts": context_of,
    }  # fmt: skip
    infos = {name: cached.cache_info() for name, cached in found.items()}
    return {
        name: {
            "hits": round(info.hits / max(1, info.hits + info.misses), 3),
            "entries": info.currsize,
            "bound": info.maxsize or 0,
        }
        for name, info in infos.items()
    }


def mask_by_trial(state: State) -> np.ndarray:
    """What `mask` must be, slowly: every action is tried."""
    return np.array([holds(rules.apply, state, index) for index in range(len(ACTIONS))])


def mask(state: State) -> np.ndarray:
    """(len(ACTIONS),) bool: True = `rules.apply` takes the action."""
    goal = state.goal
    if goal is None:
        return np.zeros(len(ACTIONS), dtype=bool)
    context, target = context_of(tuple([fact.concl for fact in goal.facts])), target_of(goal.target)
    valid = context.fresh.copy()
    indices = _on_goal(goal, context, target)
    if len(goal.facts) < FACTS:
        known, names = context.known, context.names | target.names
        indices += [index for index, result in _axioms(names) if result not in known]
        indices += _declarations(names)
    if state.past is not None:
        indices.append(FIRST["backtrack"])
    valid[indices] = True
    return valid


def _on_goal(goal: Goal, context: Context, target: Target) -> list[int]:
    """Indices of the valid actions on the goal."""
    count = len(goal.facts)
    indices = list(context.clashes) if target.is_formula else []
    unequal = [fact for fact in goal.facts if fact.concl.op == "ne"] if target.is_identity else []
    if target.is_identity and holds(kernel.ring, goal.target, *unequal):
        indices.append(FIRST["ring"])
    if target.is_decided:
        indices.append(FIRST["decide"])
    if target.parts is not None and count + target.parts <= FACTS:
        indices.append(FIRST["split_goal"])
    for slot, fact in enumerate(context.facts):
        indices += [FIRST[name] + slot for name in on_goal(fact, target)]
        if fact.expr.op == "or" and count - 1 + max(map(_conjuncts, fact.expr.args)) <= FACTS:
            indices.append(FIRST["split_case"] + slot)
    return indices
