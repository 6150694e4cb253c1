"""Edits of Python text without a model: a place is found in the syntax tree, and the text is cut there alone.

Everything outside the replaced expression or statement keeps its formatting and comments.  An edit
draws only from the generator passed to it and returns None where it has nothing to work on.  These
edits are blind: a child is parsed, imported and run before it costs an evaluation.

`number`, `operator`, `operand`, `grow`, `guard`, `shrink` and `reorder` change one program;
`graft` and `unite` bring in parts of a second one.  `knobs` moves literal constants inside the
domains that their comments state (`operators.py`).
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from functools import wraps

from ....errors import InputError
from . import operators, targets
from .program import Program, regions
from .source import SIMPLE, PythonSource, Site, changeable, is_number, parsed

Edit = Callable[[Program, Program | None, random.Random], Program | None]
"""A change of the first program, with the second as a donor where the edit takes one."""

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_LARGEST = 4000
"""Syntax nodes above which a program grows no further: blind edits bloat what nobody stops."""


def _python(program: Program, rng: random.Random) -> tuple[str, PythonSource] | None:
    """One Python part of the program, drawn by its size."""
    names = [name for name in program.parts if name.endswith(".py")]
    weights = [sum(stop - start for start, stop in regions(program.parts[name])) + 1 for name in names]
    if not names:
        return None
    name = rng.choices(names, weights)[0]
    try:
        return name, parsed(program.parts[name])
    except (SyntaxError, ValueError):
        return None


def _of_source(change: Callable[[PythonSource, random.Random], str | None]) -> Edit:
    """An edit of one Python part of a program; `change` gives its new text, None where it finds nothing."""

    @wraps(change)
    def edit(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
        drawn = _python(program, rng)
        text = change(drawn[1], rng) if drawn is not None else None
        return program.with_part(drawn[0], text) if drawn is not None and text is not None else None

    return edit


@_of_source
def number(source: PythonSource, rng: random.Random) -> str | None:
    """Move one or more numbers, or flip a True or False."""
    numbers = [site.node for site in source.sites() if is_number(site.node)]
    if not numbers:
        return None
    count = 1
    while count < len(numbers) and rng.random() < 0.3:
        count += 1
    changes = []
    for node in rng.sample(numbers, count):
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, (int, float))
        changes.append((source.span(node), repr(_moved(node.value, rng))))
    return source.spliced(changes)


def _moved(value: int | float, rng: random.Random) -> int | float:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        reach = max(1, round(abs(value) * 0.5))
        step = rng.randint(1, reach) if rng.random() < 0.7 else 1
        moved = value + (step if rng.random() < 0.5 else -step)
        return moved if moved >= 0 else -moved  # a sign is an operator's business
    drawn = value * 2.0 ** rng.gauss(0.0, 0.7) if value else abs(rng.gauss(0.0, 0.3))
    return float(f"{drawn:.4g}")


@_of_source
def operator(source: PythonSource, rng: random.Random) -> str | None:
    """Swap an arithmetic sign, a comparison, or `and` and `or`."""
    sites = [site for site in source.sites() if isinstance(site.node, (ast.BinOp, ast.Compare, ast.BoolOp))]
    if not sites:
        return None
    site = rng.choice(sites)
    node: ast.expr = site.node
    if isinstance(node, ast.BinOp):
        if rng.random() < 0.25:
            # A new node: the old ones are shared by all that draw this parent (`source.parsed`).
            new: ast.expr = ast.BinOp(node.right, node.op, node.left)
        else:
            new = ast.BinOp(node.left, rng.choice(_other(_ARITHMETIC, node.op))(), node.right)
    elif isinstance(node, ast.Compare):
        sign = rng.choice(_other((*_COMPARISONS, ast.Eq), node.ops[0]))()
        new = ast.Compare(node.left, [sign, *node.ops[1:]], node.comparators)
    else:
        assert isinstance(node, ast.BoolOp)
        new = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    return source.put(site, new)


def _other(kinds: tuple[type, ...], now: ast.AST) -> list[type]:
    return [kind for kind in kinds if not isinstance(now, kind)]


@_of_source
def operand(source: PythonSource, rng: random.Random) -> str | None:
    """Put another name or number in the place of one."""
    sites = [
        site
        for site in source.sites()
        if is_number(site.node) or (isinstance(site.node, ast.Name) and site.node.id in site.names)
    ]
    if not sites:
        return None
    site = rng.choice(sites)
    return source.put(site, _leaf(site.names, rng))


def _leaf(names: tuple[str, ...], rng: random.Random) -> ast.expr:
    if names and rng.random() < 0.65:
        return ast.Name(rng.choice(names), ast.Load())
    return ast.Constant(rng.choice((0, 1, 2, 3, 5, 10, 20, 50, 100, 0.5, 0.1, 0.01)))


def _term(names: tuple[str, ...], rng: random.Random) -> ast.expr:
    """A small expression: a leaf, or two with a sign between."""
    if rng.random() < 0.5:
        return _leaf(names, rng)
    return ast.BinOp(_leaf(names, rng), rng.choice(_ARITHMETIC)(), _leaf(names, rng))


def _arithmetic(source: PythonSource) -> list[Site]:
    """Sites that hold a number at run time, as far as the text shows."""
    return [
        site
        for site in source.sites()
        if isinstance(site.node, (ast.BinOp, ast.UnaryOp, ast.IfExp))
        or is_number(site.node)
        or (isinstance(site.node, ast.Name) and site.node.id in site.names)
    ]


@_of_source
def grow(source: PythonSource, rng: random.Random) -> str | None:
    """Join a term to an expression: `e` becomes `e + term`."""
    sites = _arithmetic(source)
    if not sites or _too_large(source):
        return None
    site = rng.choice(sites)
    new = ast.BinOp(site.node, rng.choice(_ARITHMETIC)(), _term(site.names, rng))
    return source.put(site, new)


@_of_source
def guard(source: PythonSource, rng: random.Random) -> str | None:
    """Make an expression depend on a condition: `e` becomes `alternative if a < b else e`."""
    sites = [site for site in _arithmetic(source) if site.names]
    if not sites or _too_large(source):
        return None
    site = rng.choice(sites)
    condition = _condition(site.names, rng)
    way = rng.random()
    alternative: ast.expr
    if way < 0.3:
        alternative = _term(site.names, rng)
    elif way < 0.5:
        alternative = ast.UnaryOp(ast.USub(), site.node)
    else:
        alternative = ast.BinOp(site.node, rng.choice(_ARITHMETIC)(), _term(site.names, rng))
    return source.put(site, ast.IfExp(condition, alternative, site.node))


def _condition(names: tuple[str, ...], rng: random.Random) -> ast.expr:
    """A comparison: of a name with a number or with two, or of two small expressions."""
    way = rng.random()
    if way < 0.4:
        low, high = sorted((_scaled(rng), _scaled(rng)))
        name = ast.Name(rng.choice(names), ast.Load())
        return ast.Compare(ast.Constant(low), [ast.Lt(), ast.Lt()], [name, ast.Constant(high)])
    sign = rng.choice(_COMPARISONS)()
    if way < 0.7:
        return ast.Compare(ast.Name(rng.choice(names), ast.Load()), [sign], [ast.Constant(_scaled(rng))])
    return ast.Compare(_term(names, rng), [sign], [_term(names, rng)])


def _scaled(rng: random.Random) -> int:
    """A whole number from 0 to 100, small ones more often."""
    return int(101.0 ** rng.random()) - 1 if rng.random() < 0.9 else rng.randint(0, 100)


def _too_large(source: PythonSource) -> bool:
    return sum(1 for _ in ast.walk(source.tree)) > _LARGEST


@_of_source
def shrink(source: PythonSource, rng: random.Random) -> str | None:
    """Put a part of an expression in the place of the whole, or drop a statement."""
    if rng.random() < 0.25:
        droppable = [(body, index) for body, index in source.statements() if len(body) > 1]
        if droppable:
            body, index = rng.choice(droppable)
            return source.spliced([(source.span(body[index]), "pass")])
    pairs = [
        (site, child)
        for site in source.sites()
        if isinstance(site.node, (ast.BinOp, ast.BoolOp, ast.IfExp, ast.UnaryOp))
        for child in ast.iter_child_nodes(site.node)
        if isinstance(child, ast.expr)
    ]
    if not pairs:
        return None
    site, child = rng.choice(pairs)
    return source.put(site, child)


@_of_source
def reorder(source: PythonSource, rng: random.Random) -> str | None:
    """Swap a statement with the one after it, or repeat it."""
    statements = source.statements()
    if not statements:
        return None
    body, index = rng.choice(statements)
    statement = body[index]
    text, span = source.segment(statement), source.span(statement)
    after = body[index + 1] if index + 1 < len(body) else None
    if isinstance(after, SIMPLE) and source.inside(after) and rng.random() < 0.7:
        return source.spliced([(span, source.segment(after)), (source.span(after), text)])
    indent = source.raw[source.starts[statement.lineno - 1] : span[0]].decode()
    # Tabs stay tabs; a statement that shares its line with one before it is repeated on that line.
    return source.spliced([(span, f"{text}; {text}" if indent.strip() else f"{text}\n{indent}{text}")])


def graft(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Put an expression of the donor in the place of one, where all its names are known."""
    drawn = _python(program, rng)
    if drawn is None or donor is None or drawn[0] not in donor.parts:
        return None
    name, source = drawn
    try:
        donated = parsed(donor.parts[name])
    except (SyntaxError, ValueError):
        return None
    sites = _arithmetic(source)
    gifts = [site.node for site in _arithmetic(donated) if isinstance(site.node, (ast.BinOp, ast.IfExp))]
    if not sites or not gifts:
        return None
    site = rng.choice(sites)
    fitting = [
        gift
        for gift in gifts
        if {node.id for node in ast.walk(gift) if isinstance(node, ast.Name)} <= set(site.names)
    ]
    return program.with_part(name, source.put(site, rng.choice(fitting))) if fitting else None


def unite(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Take each definition that the two programs have in different forms from one or the other.

    Definitions are functions, methods, classes without methods and module-level assignments: the
    building blocks that crossover must not tear apart.
    """
    if donor is None:
        return None
    changed = program
    for name in program.parts:
        if name not in donor.parts or program.parts[name] == donor.parts[name]:
            continue
        if not name.endswith(".py"):
            if rng.random() < 0.5:
                changed = changed.with_part(name, donor.parts[name])
            continue
        try:
            mine, its = parsed(program.parts[name]), parsed(donor.parts[name])
        except (SyntaxError, ValueError):
            continue
        theirs = changeable(its)
        changes = []
        for key, node in changeable(mine).items():
            gift = theirs.get(key)
            if gift is not None and its.segment(gift) != mine.segment(node) and rng.random() < 0.5:
                changes.append((mine.span(node), its.segment(gift)))
        changed = changed.with_part(name, mine.spliced(changes))
    return None if changed.parts == program.parts else changed


@_of_source
def knobs(source: PythonSource, rng: random.Random) -> str | None:
    """Move literal constants of the module inside the domains that their comments state."""
    tunable: list[tuple[str, targets.ConstantTarget, list[operators.Knob]]] = []
    for constant, node in changeable(source).items():
        if "." in constant or not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        try:
            target = targets.find(source.text, constant)
            movable = operators.knobs(target.value, target.domains)
        except InputError:
            continue
        if movable:
            tunable.append((constant, target, movable))
    if not tunable:
        return None
    constant, target, movable = rng.choices(tunable, [len(knobs) for *_, knobs in tunable])[0]
    value = operators.mutate(target.value, movable, rng, strength=0.7)
    return targets.patch(source.text, constant, value)


EDITS: dict[str, Edit] = {
    edit.__name__: edit
    for edit in (knobs, number, operator, operand, grow, guard, shrink, reorder, graft, unite)
}
"""Name → edit; the bandit draws by this order, so a change of it changes every search."""
