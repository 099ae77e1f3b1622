"""Chat templates are programs written by strangers: jinja2's immutable sandbox, and a meter on all they do.

The sandbox keeps a template away from Python's insides. It does not keep it from `'a' * 10**9`, from loops in loops or
from macros that double their text, and a thread that is stuck in such a template cannot be stopped from outside. So
the parsed template is rewritten before it is compiled: every turn of a loop, every value that is made and everything
printed first asks the rendering's Budget. What can make something large in a single step is asked beforehand
(operators, `replace`, `join`, `indent`), and filters, methods and statements are a short list of what chat templates
use; anything else is refused by name. No process, thread or signal is needed, and two renderings never meet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from core.model.text.template_budget import Budget
from core.model.text.template_sizes import filter_size, method_size, operator_size

# The budget travels with the other variables; no template can write a name with a space.
BUDGET = "the budget"

# fmt: off
_FILTERS = frozenset({
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "indent", "int", "items", "join",
    "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "safe",
    "select", "selectattr", "sort", "string", "title", "tojson", "trim", "unique", "upper",
})
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdecimal", "isdigit", "islower",
        "isnumeric", "isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
        "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
        "title", "upper",
    }),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
    LoopContext: frozenset({"changed", "cycle"}),
}
# fmt: on
_STATEMENTS = (
    *(nodes.Output, nodes.For, nodes.If, nodes.Macro, nodes.Assign, nodes.AssignBlock, nodes.With, nodes.ExprStmt),
    *(nodes.Break, nodes.Continue),
)
_LONGEST_FORMAT = 100


class TemplateNamespace(Namespace):
    """jinja2's namespace, without names that Python itself looks up on objects."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            TemplateNamespace._check(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        TemplateNamespace._check(name)
        super().__setitem__(name, value)

    @staticmethod
    def _check(name: object) -> None:
        if not isinstance(name, str) or name.startswith("_"):
            raise SecurityError("a namespace cannot hold this name")


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; here it only stands aside."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tag and its end."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment chat templates are compiled and run in: transformers' settings, with the meter attached."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        plain = ImmutableSandboxedEnvironment()
        plain.filters["tojson"] = _tojson
        self.filters = {name: _metered_filter(plain, name) for name in _FILTERS}
        self.filters |= {name: _meter(name) for name in ("made", "printed", "copied")}
        self.filters |= {"metered": _metered, "joined": _joined}
        self.tests = {name: _metered_test(plain, name) for name in plain.tests if name not in ("filter", "test")}
        self.globals = {
            "range": safe_range,
            "dict": _dict,
            "namespace": TemplateNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def prepare(self, source: str) -> Any:
        """The compiled template. Raises jinja2's errors, and SecurityError for what chat templates have no use for."""
        tree = _Rewriter().visit(self.parse(source))
        tree.set_environment(self)
        return self.from_string(tree)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """An attribute the sandbox keeps closed ends the rendering, also where its value would not be used."""
        raise SecurityError(f"{attribute} is closed to templates")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator, after asking whether its result may be made."""
        budget: Budget = context[BUDGET]
        budget.spend(operator_size(operator, left, right))
        return budget.made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of a macro, of one of our functions, or of a known method."""
        budget: Budget = __context[BUDGET]
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(__obj, Macro) or any(__obj is function for function in __self.globals.values()):
            budget.spend()
        elif any(isinstance(owner, kind) and name in methods for kind, methods in _METHODS.items()):
            args = tuple(list(argument) if name == "join" else argument for argument in args)
            budget.spend(method_size(budget, owner, name, args, kwargs))
        else:
            raise SecurityError(f"{name or type(__obj).__name__} cannot be called")
        return budget.made(super().call(__context, __obj, *args, **kwargs))


class _Rewriter(NodeTransformer):
    """Puts the meter into a parsed template."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
            raise SecurityError(f"{type(node).__name__} is not for chat templates")
        return super().generic_visit(node, *args, **kwargs)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        plain: list[nodes.Expr] = [
            nodes.Const(part.data, lineno=part.lineno) if isinstance(part, nodes.TemplateData) else part
            for part in node.nodes
        ]
        node.nodes = [_filter(part, "printed") for part in plain]
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise SecurityError("a recursive loop is not for chat templates")
        self.generic_visit(node)
        turn = nodes.ExprStmt(_filter(nodes.Const(None, lineno=node.lineno), "metered"), lineno=node.lineno)
        node.body.insert(0, turn)
        if node.test is not None:
            node.test = _filter(node.test, "metered")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "joined")

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, "copied" if isinstance(node.arg, nodes.Slice) else "metered")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, "metered")

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, "made")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, "made")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, "made") if node.ctx == "load" else node


def _filter(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


# The filters take the context, which also keeps jinja2 from working them out while it compiles.


def _meter(name: str) -> Callable[..., Any]:
    @pass_context
    def measure(context: Context, value: Any) -> Any:
        return getattr(context[BUDGET], name)(value)

    return measure


@pass_context
def _metered(context: Context, value: Any) -> Any:
    context[BUDGET].spend()
    return value


@pass_context
def _joined(context: Context, values: list[Any]) -> str:
    return "".join([context[BUDGET].printed(value) for value in values])


def _metered_filter(plain: ImmutableSandboxedEnvironment, name: str) -> Callable[..., Any]:
    @pass_context
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context[BUDGET]
        value = budget.listed(value)
        budget.spend(filter_size(budget, name, value, args, kwargs))
        return budget.made(plain.call_filter(name, value, args, kwargs, context=context))

    return run


def _metered_test(plain: ImmutableSandboxedEnvironment, name: str) -> Callable[..., Any]:
    @pass_context
    def run(context: Context, value: Any, *args: Any) -> Any:
        context[BUDGET].spend()
        return plain.call_test(name, value, args, context=context)

    return run


def _tojson(
    value: Any,
    *,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: plain, not escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: object = "") -> None:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _LONGEST_FORMAT:
        raise SecurityError("the date format is too long")
    return datetime.now().strftime(form)
