"""The proof kernel: theorems as sequents, made by the inference rules below and by nothing else.

A theorem `hyps ⊢ concl` says: at every point (reals for x y z u, integers for n m k) where all of hyps are true,
concl is true, with the strict meaning of atoms of `terms`. A rule takes theorems and parameters, checks its side
condition and raises `Refused` when it fails; nothing is searched, timed or parsed here. Every theorem keeps its rule
and inputs, so a proof can be written down and replayed (certify.py). Whoever wants to fool Python itself can:
`object.__setattr__` and gc are not defended against; model text never gets near them.

P R 0 below is the zero form of an atom: P the normal form of left − right, R its relation.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from math_env import terms
from math_env.terms import FALSE, INTEGER_VARIABLES, REAL_VARIABLES, ZERO, Expr, Poly, Refused, num

_MINT = object()
Sequent = tuple[frozenset[Expr], Expr]


class Theorem:
    """`hyps ⊢ concl`, immutable, with its provenance: `rule` and `inputs` (theorems and parameters, in order)."""

    __slots__ = ("concl", "hyps", "inputs", "rule")
    hyps: frozenset[Expr]
    concl: Expr
    rule: str
    inputs: tuple[Any, ...]

    def __init__(self, mint: object, sequent: Sequent, rule: str, inputs: tuple[Any, ...]) -> None:
        if mint is not _MINT:
            raise Refused("only the kernel's rules make theorems")
        for name, item in zip(("hyps", "concl", "rule", "inputs"), (*sequent, rule, inputs), strict=True):
            object.__setattr__(self, name, item)

    def __setattr__(self, name: str, item: object) -> None:
        raise AttributeError("a Theorem is immutable")


RULES: dict[str, Callable[..., Theorem]] = {}
"""Every inference rule by name, for replay."""


def _rule(infer: Callable[..., Sequent]) -> Callable[..., Theorem]:
    name = infer.__name__

    def make(*inputs: Any) -> Theorem:
        hyps, concl = infer(*inputs)
        terms.check(concl)
        return Theorem(_MINT, (hyps, concl), name, inputs)

    make.__doc__, make.__name__ = infer.__doc__, name
    RULES[name] = make
    return make


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(message)


def _theorems(*items: object) -> None:
    _require(all(type(item) is Theorem for item in items), "a premise is no theorem")


def _formula(formula: Expr) -> Expr:
    _require(type(formula) is Expr, "no formula")
    terms.check(formula)
    return formula


def _term(term: Expr) -> Expr:
    _require(type(term) is Expr, "no term")
    terms.check(term, False)
    return term


def _number(item: Any) -> Fraction:
    _require(type(item) in (int, Fraction), "no number")
    return Fraction(item)


@lru_cache(maxsize=20_000)
def _zero_form(atom: Expr) -> tuple[str, Poly]:
    """(relation, P) with atom ⟹ P relation 0. An equivalence when the atom divides by numbers only."""
    _require(atom.op in ("eq", "ne", "ge", "gt"), f"{atom.op} is no relation of two terms")
    top, bottom, _ = terms.ratio(Expr("add", atom.args[0], Expr("mul", num(-1), atom.args[1])))
    if terms.is_constant(bottom):
        _require(bool(bottom), "a division by 0")
        return atom.op, terms.combine(top, (), 1 / terms.value(bottom))
    _require(atom.op in ("eq", "ne"), "the sign of the denominator is not known")
    return atom.op, top


def _guards(atom: Expr) -> tuple[Poly, ...]:
    """The divisors of an atom that are not nonzero numbers."""
    found: list[Poly] = []
    for term in atom.args:
        if isinstance(term, Expr):
            found += [g for g in terms.ratio(term)[2] if g not in found and not (terms.is_constant(g) and g)]
    return tuple(found)


def _atom(relation: str, p: Poly) -> Expr:
    return Expr(relation, terms.term_of(p), ZERO)


def _is_sign(relation: str, amount: Fraction) -> bool:
    return {"eq": amount == 0, "ne": amount != 0, "ge": amount >= 0, "gt": amount > 0}[relation]


# ---------------------------------------------------------------- logic


@_rule
def assume(formula: Expr) -> Sequent:
    """φ ⊢ φ"""
    return frozenset({_formula(formula)}), formula


@_rule
def conj_elim(both: Theorem, index: int) -> Sequent:
    """Γ ⊢ A₀ ∧ A₁ …  gives  Γ ⊢ A_index"""
    _theorems(both)
    _require(both.concl.op == "and" and type(index) is int and 0 <= index < len(both.concl.args), "no such conjunct")
    return both.hyps, both.concl.args[index]


@_rule
def conj_intro(*parts: Theorem) -> Sequent:
    """Γᵢ ⊢ Aᵢ  gives  ∪Γᵢ ⊢ A₀ ∧ A₁ …"""
    _theorems(*parts)
    return frozenset().union(*(part.hyps for part in parts)), Expr("and", *(part.concl for part in parts))


@_rule
def disj_intro(part: Theorem, formula: Expr) -> Sequent:
    """Γ ⊢ Aᵢ  gives  Γ ⊢ A₀ ∨ A₁ …"""
    _theorems(part)
    _require(_formula(formula).op == "or" and part.concl in formula.args, "no such disjunct")
    return part.hyps, formula


@_rule
def cases(either: Theorem, *branches: Theorem) -> Sequent:
    """Γ ⊢ A₀ ∨ A₁ …  and  Γᵢ, Aᵢ ⊢ C  give  Γ ∪ ∪Γᵢ ⊢ C"""
    _theorems(either, *branches)
    _require(either.concl.op == "or" and len(either.concl.args) == len(branches), "one branch a disjunct is needed")
    _require(len({branch.concl for branch in branches}) == 1, "the branches prove different formulas")
    hyps = either.hyps
    for part, branch in zip(either.concl.args, branches, strict=True):
        hyps |= branch.hyps - {part}
    return hyps, branches[0].concl


@_rule
def iff_intro(forward: Theorem, backward: Theorem, left: Expr, right: Expr) -> Sequent:
    """Γ, A ⊢ B  and  Δ, B ⊢ A  give  Γ ∪ Δ ⊢ A ⟺ B"""
    _theorems(forward, backward)
    _require(forward.concl == _formula(right) and backward.concl == _formula(left), "the directions do not match")
    return (forward.hyps - {left}) | (backward.hyps - {right}), Expr("iff", left, right)


@_rule
def absurd(lie: Theorem, formula: Expr) -> Sequent:
    """Γ ⊢ φ with φ false by its normal form (a number against 0, a residue, ⊥)  gives  Γ ⊢ anything"""
    _theorems(lie)
    if lie.concl.op == "dvd":
        rest = _residue(lie.concl.args[0], terms.integer_poly(lie.concl.args[1]))
        _require(bool(rest) and terms.is_constant(rest), "not refuted")
    elif lie.concl.op != "false":
        relation, p = _zero_form(lie.concl)
        _require(terms.is_constant(p) and not _is_sign(relation, terms.value(p)), "not refuted")
    return lie.hyps, _formula(formula)


@_rule
def clash(equal: Theorem, unequal: Theorem) -> Sequent:
    """Γ ⊢ P = 0  and  Δ ⊢ Q ≠ 0  with Q = c·P  give  Γ ∪ Δ ⊢ ⊥"""
    _theorems(equal, unequal)
    (relation, p), (other, q) = _zero_form(equal.concl), _zero_form(unequal.concl)
    _require(relation == "eq" and other == "ne" and terms.primitive(p) == terms.primitive(q), "no contradiction")
    return equal.hyps | unequal.hyps, FALSE


# ---------------------------------------------------------------- axioms


@_rule
def square_nonneg(term: Expr) -> Sequent:
    """⊢ t² ≥ 0, expanded; t divides by numbers only"""
    p = terms.poly(_term(term))
    return frozenset(), _atom("ge", terms.times(p, p))


@_rule
def residues(name: str, modulus: int) -> Sequent:
    """⊢ m | v ∨ m | v − 1 ∨ … ∨ m | v − (m − 1), v an integer variable, 2 <= m <= 12"""
    _require(name in INTEGER_VARIABLES and type(modulus) is int and 2 <= modulus <= 12, "no residue classes")
    v = ((((name, 1),), Fraction(1)),)
    parts = [terms.term_of(terms.combine(v, terms.constant(-r))) for r in range(modulus)]
    return frozenset(), Expr("or", *(Expr("dvd", modulus, part) for part in parts))


@_rule
def ring(equation: Expr, *unequal: Theorem) -> Sequent:
    """Γᵢ ⊢ Qᵢ ≠ 0  give  ∪Γᵢ ⊢ a = b  when a − b has normal form 0 and every divisor is some c·Qᵢ"""
    _theorems(*unequal)
    relation, p = _zero_form(_formula(equation))
    _require(relation == "eq" and not p, "the two sides differ")
    nonzero = [terms.primitive(q) for op, q in (_zero_form(t.concl) for t in unequal) if op == "ne"]
    _require(all(terms.primitive(g) in nonzero for g in _guards(equation)), "a divisor may be 0")
    return frozenset().union(*(theorem.hyps for theorem in unequal)), equation


@_rule
def decide(formula: Expr) -> Sequent:
    """⊢ φ for a true φ without variables"""
    _require(not terms.variables(_formula(formula)) and terms.is_true(formula, {}), "not a true closed formula")
    return frozenset(), formula


# ---------------------------------------------------------------- theorems on relations


@_rule
def to_zero(atom: Theorem) -> Sequent:
    """Γ ⊢ a R b  gives  Γ ⊢ P R 0 with coprime integer coefficients (R kept: scaled by c > 0 for ≥ and >)"""
    _theorems(atom)
    relation, p = _zero_form(atom.concl)
    return atom.hyps, _atom(relation, terms.primitive(p, keep_sign=relation in ("ge", "gt")))


@_rule
def restate(atom: Theorem, formula: Expr) -> Sequent:
    """Γ ⊢ P R 0  gives  Γ ⊢ φ, φ: Q S 0 without divisors, when Q = c·P + d makes it follow

    = to =, ≠ to ≠: c ≠ 0, d = 0.  = to ≥, >: d ≥ 0, d > 0.  ≥, > to ≥, >: c > 0, d ≥ 0
    (d > 0 from ≥ to >).  > to ≠: d = 0.
    """
    _theorems(atom)
    _require(not _guards(_formula(formula)), "a divisor may be 0")
    (relation, p), (target, q) = _zero_form(atom.concl), _zero_form(formula)
    _require(not terms.is_constant(p), "a relation of numbers")
    mono, coef = next(item for item in p if item[0] != ())
    c = dict(q).get(mono, Fraction(0)) / coef
    rest = terms.combine(q, p, b=-c)
    d = terms.value(rest)
    if target in ("eq", "ne"):
        follows = d == 0 and c != 0 and (relation == target or (relation == "gt" and target == "ne"))
    elif relation == "eq":
        follows = _is_sign(target, d)
    else:
        follows = relation in ("ge", "gt") and c > 0 and (d > 0 or (d == 0 and (relation, target) != ("ge", "gt")))
    _require(follows, "it does not follow")
    return atom.hyps, formula


@_rule
def factor_as(equation: Theorem, product: Expr) -> Sequent:
    """Γ ⊢ P R 0 (R: =, ≠)  gives  Γ ⊢ t R 0 when t, dividing by numbers only, has normal form c·P, c ≠ 0"""
    _theorems(equation)
    relation, p = _zero_form(equation.concl)
    _require(relation in ("eq", "ne") and terms.primitive(terms.poly(_term(product))) == terms.primitive(p), "differs")
    return equation.hyps, Expr(relation, product, ZERO)


@_rule
def zero_product(equation: Theorem) -> Sequent:
    """Γ ⊢ A·B·… = 0  gives  Γ ⊢ A = 0 ∨ B = 0 ∨ …  (Aⁿ counts once; one distinct factor: Γ ⊢ A = 0)"""
    _theorems(equation)
    _require(equation.concl.op == "eq" and equation.concl.args[1] == ZERO, "no equation with 0")
    factors = list(dict.fromkeys(_factors(equation.concl.args[0])))
    _require(factors != [equation.concl.args[0]], "no product")
    parts = [Expr("eq", factor, ZERO) for factor in factors]
    return equation.hyps, parts[0] if len(parts) == 1 else Expr("or", *parts)


def _factors(term: Expr) -> list[Expr]:
    if term.op == "mul":
        return [factor for arg in term.args for factor in _factors(arg)]
    if term.op == "pow" and term.args[1] >= 1:
        return _factors(term.args[0])
    return [term]


@_rule
def solve_linear(equation: Theorem, name: str) -> Sequent:
    """Γ ⊢ c·v + r = 0, c a nonzero number, v not in r, no divisors  gives  Γ ⊢ v = −r/c"""
    _theorems(equation)
    relation, p = _zero_form(equation.concl)
    rest = {mono: coef for mono, coef in p if mono != ((name, 1),)}
    coef = dict(p).get(((name, 1),))
    _require(relation == "eq" and coef is not None, f"not linear in {name}")
    _require(all(name not in dict(mono) for mono in rest), f"not linear in {name}")
    assert coef is not None
    return equation.hyps, Expr("eq", terms.var(name), terms.term_of(terms.combine(terms.pack(rest), (), -1 / coef)))


@_rule
def defined(atom: Theorem, index: int) -> Sequent:
    """Γ ⊢ φ  gives  Γ ⊢ Q ≠ 0 for the index-th divisor Q of the atom φ"""
    _theorems(atom)
    _require(atom.concl.op in terms.ATOMS, "no atom")
    guards = _guards(atom.concl)
    _require(type(index) is int and 0 <= index < len(guards), "no such divisor")
    return atom.hyps, _atom("ne", terms.primitive(guards[index]))


@_rule
def cancel(equation: Theorem, unequal: Theorem, quotient: Expr) -> Sequent:
    """Γ ⊢ P = 0  and  Δ ⊢ Q ≠ 0  give  Γ ∪ Δ ⊢ t = 0 when P = c·Q·t, c ≠ 0"""
    _theorems(equation, unequal)
    (relation, p), (other, q) = _zero_form(equation.concl), _zero_form(unequal.concl)
    _require(relation == "eq" and other == "ne" and bool(p), "needs P = 0 and Q ≠ 0")
    product = terms.times(q, terms.poly(_term(quotient)))
    _require(terms.primitive(product) == terms.primitive(p), "Q does not divide P so")
    return equation.hyps | unequal.hyps, Expr("eq", quotient, ZERO)


@_rule
def add(first: Theorem, second: Theorem) -> Sequent:
    """P R 0, Q S 0  give  P + Q T 0 (R, S among =, ≥, >; T the stricter);  m | a, m | b  give  m | a + b"""
    _theorems(first, second)
    hyps = first.hyps | second.hyps
    if first.concl.op == "dvd" and second.concl.op == "dvd":
        _require(first.concl.args[0] == second.concl.args[0], "two moduli")
        a, b = (terms.integer_poly(t.concl.args[1]) for t in (first, second))
        return hyps, Expr("dvd", first.concl.args[0], terms.term_of(terms.combine(a, b)))
    (relation, p), (other, q) = _zero_form(first.concl), _zero_form(second.concl)
    order = ("eq", "ge", "gt")
    _require(relation in order and other in order, "≠ cannot be added")
    return hyps, _atom(max(relation, other, key=order.index), terms.combine(p, q))


@_rule
def scale(atom: Theorem, factor: Fraction) -> Sequent:
    """P R 0  gives  c·P R 0: c ≠ 0 for = and ≠, c > 0 for ≥ and >"""
    _theorems(atom)
    relation, p = _zero_form(atom.concl)
    c = _number(factor)
    _require(c != 0 if relation in ("eq", "ne") else c > 0, "the factor has the wrong sign")
    return atom.hyps, _atom(relation, terms.combine(p, (), c))


@_rule
def multiply(first: Theorem, second: Theorem) -> Sequent:
    """P R 0, Q R 0  give  P·Q R 0 for R among ≥, >, ≠"""
    _theorems(first, second)
    (relation, p), (other, q) = _zero_form(first.concl), _zero_form(second.concl)
    _require(relation == other and relation in ("ge", "gt", "ne"), "needs two of ≥, > or ≠")
    return first.hyps | second.hyps, _atom(relation, terms.times(p, q))


# ---------------------------------------------------------------- substitution


def _definition(equation: Expr) -> tuple[str, Expr]:
    """(v, t) of v = t with v not in t and no divisors in t."""
    _require(equation.op == "eq" and equation.args[0].op == "var", "no equation v = t")
    name, term = equation.args[0].args[0], equation.args[1]
    terms.poly(term)
    _require(name not in terms.variables(term), f"{name} occurs in its own value")
    return name, term


@_rule
def substitute(equation: Theorem, atom: Theorem) -> Sequent:
    """Γ ⊢ v = t  and  Δ ⊢ φ  give  Γ ∪ Δ ⊢ φ[v := t], in zero form; w = s stays w = s[v := t] (w not v, not in it)"""
    _theorems(equation, atom)
    name, term = _definition(equation.concl)
    _require(name in terms.variables(atom.concl), f"{name} does not occur")
    hyps, after = equation.hyps | atom.hyps, terms.substituted(atom.concl, name, term)
    if after.op == "dvd":
        return hyps, Expr("dvd", after.args[0], terms.term_of(terms.integer_poly(after.args[1])))
    relation, p = _zero_form(after)
    if relation == "eq" and after.args[0].op == "var" and not _guards(after):
        right = terms.term_of(terms.poly(after.args[1]))
        if after.args[0].args[0] not in terms.variables(right) | {name}:
            return hyps, Expr("eq", after.args[0], right)
    return hyps, _atom(relation, terms.primitive(p, keep_sign=relation in ("ge", "gt")))


@_rule
def rewrite(equation: Theorem, after: Theorem, formula: Expr) -> Sequent:
    """Γ ⊢ v = t  and  Δ ⊢ φ[v := t]  give  Γ ∪ Δ ⊢ φ"""
    _theorems(equation, after)
    name, term = _definition(equation.concl)
    _require(after.concl == terms.substituted(_formula(formula), name, term), "not the formula with the value put in")
    return equation.hyps | after.hyps, formula


@_rule
def undeclare(theorem: Theorem, name: str, term: Expr) -> Sequent:
    """Γ, u = t ⊢ φ  gives  Γ ⊢ φ when u is a real variable in none of Γ, φ, t, and t divides by numbers only"""
    _theorems(theorem)
    terms.poly(_term(term))
    _require(name in REAL_VARIABLES, "not a real variable")
    hyps = theorem.hyps - {Expr("eq", terms.var(name), term)}
    _require(all(name not in terms.variables(e) for e in (*hyps, theorem.concl, term)), f"{name} is not fresh")
    return hyps, theorem.concl


# ---------------------------------------------------------------- residues


def _residue(modulus: int, p: Poly) -> Poly:
    return terms.pack({mono: Fraction(int(coef) % modulus) for mono, coef in p})


def _reduced(known: Expr, target: Expr) -> Expr:
    """m | g[v := r] with coefficients modulo m, for known: m | v − r, target: m | g."""
    _require(known.op == "dvd" and target.op == "dvd" and known.args[0] == target.args[0], "needs one modulus")
    modulus = known.args[0]
    p = dict(terms.integer_poly(known.args[1]))
    r = -p.pop((), Fraction(0))
    ((mono, coef),) = p.items() if len(p) == 1 else [((), Fraction(0))]
    _require(coef == 1 and len(mono) == 1 and mono[0][1] == 1, "not m | v − r")
    _require(mono[0][0] in terms.variables(target), f"{mono[0][0]} does not occur")
    after = terms.integer_poly(terms.substituted(target.args[1], mono[0][0], num(r)))
    return Expr("dvd", modulus, terms.term_of(_residue(modulus, after)))


@_rule
def reduce(known: Theorem, divides: Theorem) -> Sequent:
    """m | v − r  and  m | g  give  m | g[v := r], coefficients modulo m"""
    _theorems(known, divides)
    return known.hyps | divides.hyps, _reduced(known.concl, divides.concl)


@_rule
def unreduce(known: Theorem, after: Theorem, formula: Expr) -> Sequent:
    """m | v − r  and  m | g[v := r], coefficients modulo m, give  m | g"""
    _theorems(known, after)
    _require(after.concl == _reduced(known.concl, _formula(formula)), "not the reduced formula")
    return known.hyps | after.hyps, formula
