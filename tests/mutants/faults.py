"""The small faults that a module can have."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

OPPOSITES = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    (ast.And, ast.Or),
)
SWAPS: dict[type[ast.AST], type[Any]] = {
    operator: other for pair in OPPOSITES for operator, other in (pair, reversed(pair))
}
REMOVABLE = (ast.Expr, ast.AugAssign, ast.Raise, ast.Return, ast.Continue, ast.Break, ast.Delete)


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of the tree that `apply` makes. `function` is the path of the module and the name of the function."""

    function: str
    what: str
    apply: Callable[[], None]


def faults(node: ast.AST, place: str, *, is_function: bool = False) -> Iterator[Fault]:
    """Yields the faults below a node. Docstrings, logs, annotations, decorators and results of functions stay.

    `place` is the module or the function around the node; a function within a function has no name of its own."""
    children = list(ast.iter_child_nodes(node))
    match node:
        case ast.ClassDef():
            children, place = list(node.body), _inside(place, node.name)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            defaults = [value for value in (*node.args.defaults, *node.args.kw_defaults) if value is not None]
            children, place = [*defaults, *node.body], place if is_function else _inside(place, node.name)
            is_function = True
        case ast.AnnAssign():
            children = [node.value] if node.value else []
        case _:
            pass
    for at, what, apply in _own_faults(node):
        text = f"line {at.lineno}, {what}: {ast.unparse(at).splitlines()[0][:90]}"
        yield Fault(place, text, apply)
    for child in children:
        if not _is_silent(child):
            yield from faults(child, place, is_function=is_function)


def _inside(place: str, name: str) -> str:
    return f"{place}{name}" if place.endswith(":") else f"{place}.{name}"


def _own_faults(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str, Callable[[], None]]]:
    match node:
        case ast.Compare():
            for number, operator in enumerate(node.ops):
                other = SWAPS[type(operator)]
                yield node, other.__name__, partial(node.ops.__setitem__, number, other())
        case ast.BoolOp():
            other = SWAPS[type(node.op)]
            yield node, other.__name__, partial(setattr, node, "op", other())
        case ast.Constant(value=bool() | int() | float() as value):
            changed = not value if isinstance(value, bool) else int(value == 0)
            yield node, str(changed), partial(setattr, node, "value", changed)
        case ast.If() | ast.IfExp() | ast.While():
            yield node, "swapped", partial(setattr, node, "test", ast.UnaryOp(ast.Not(), node.test))
        case _:
            pass
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None)
        for number, statement in enumerate(statements if isinstance(statements, list) else []):
            if _is_removable(statement, node):
                yield statement, "removed", partial(statements.__setitem__, number, ast.Pass())


def _is_removable(statement: ast.stmt, parent: ast.AST) -> bool:
    if isinstance(statement, ast.Assign):
        return not isinstance(statement.targets[0], ast.Name | ast.Tuple)
    is_result = isinstance(statement, ast.Return) and isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef)
    return isinstance(statement, REMOVABLE) and not is_result and not _is_silent(statement)


def _is_silent(node: ast.AST) -> bool:
    """Whether the node is a docstring or a log."""
    match node:
        case ast.Expr(value=ast.Constant() | ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
        case _:
            return False
