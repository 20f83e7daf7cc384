"""Running a model's chat template without trusting it: no way out of Jinja's sandbox, and a bound on time and memory.

A template comes with a model file from anywhere. Jinja's sandbox keeps it from Python's internals but not from
looping for hours or from doubling a string forty times; here every loop turn, call and text is charged to a budget.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_round, sync_do_map
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jinja2.parser import Parser

# A conversation of a thousand messages takes some 20,000 of these; the bound is a second or so of real work.
MOST_STEPS: Final = 1_000_000
# Every text made or used counts, so this is far more than the longest prompt.
MOST_CHARACTERS: Final = 32_000_000
_CHARACTERS_PER_ITEM: Final = 8  # an item of a list takes 8 bytes, and 36 where it is a number of its own
# For what a single step can hide, such as searching a long list.
DEADLINE_NS: Final = 5 * 10**9
MOST_TEMPLATE_CHARACTERS: Final = 1_000_000
_MOST_BITS: Final = 1_024
_MOST_RANGE: Final = 10_000

# What chat templates use. The others are left out because they take a width, draw at random or fetch attributes.
_FILTERS: Final = frozenset(
    {
        "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int", "items",
        "groupby", "last", "length", "list", "lower", "max", "min", "reject", "rejectattr", "reverse", "safe",
        "select", "selectattr", "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper", "wordcount",
    }
)  # fmt: skip

# Methods of str, int and bytes that make much out of little, or lead to types that do.
_REFUSED_METHODS: Final = frozenset(
    {
        "center", "encode", "expandtabs", "format", "format_map", "from_bytes", "ljust", "maketrans", "rjust",
        "to_bytes", "translate", "zfill",
    }
)  # fmt: skip


class BudgetError(jinja2.TemplateError):
    """The template loops or grows beyond reason."""


class Budget:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        self.refill()

    def refill(self) -> None:
        self._steps = 0
        self._characters = 0
        self._deadline_ns = time.monotonic_ns() + DEADLINE_NS

    def step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise BudgetError(f"it takes more than {MOST_STEPS:,} steps")
        if self._steps % 16 == 0 and time.monotonic_ns() > self._deadline_ns:
            raise BudgetError(f"it takes longer than {DEADLINE_NS // 10**9} s")

    def text(self, characters: int) -> None:
        self.step()
        self._characters += characters
        if self._characters > MOST_CHARACTERS:
            raise BudgetError(f"it makes more than {MOST_CHARACTERS:,} characters")

    def value(self, value: object) -> None:
        """Charge a value that is about to be used: one step, and the length of what has one."""
        if isinstance(value, str | bytes):
            self.text(len(value))
        elif isinstance(value, list | tuple | dict | range):
            self.text(_CHARACTERS_PER_ITEM * len(value))
        else:
            self.step()


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; for a prompt it means nothing."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it (trimmed blocks, loop controls, `raise_exception`, ...), on a budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *, date: Callable[[str], str]) -> None:
        """`date` answers `strftime_now(format)`."""
        self.budget = Budget()
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], finalize=self._finalize
        )
        self.globals = {name: self.globals[name] for name in ("dict", "namespace", "joiner", "cycler")}
        self.globals |= {"range": _bounded_range, "raise_exception": _raise_exception, "strftime_now": date}
        self.filters = {name: self.filters[name] for name in _FILTERS}
        self.filters |= {"tojson": _tojson, "join": self._join, "replace": self._replace, "indent": self._indent}
        self.filters |= {"map": self._map, "round": _round, "_loop": self._loop, "_weigh": self._weigh}

    def compiled(self, source: str) -> jinja2.Template:
        """Raises jinja2.TemplateError (or RecursionError) for what is no template."""
        if len(source) > MOST_TEMPLATE_CHARACTERS:
            raise BudgetError(f"it is longer than {MOST_TEMPLATE_CHARACTERS:,} characters")
        self.budget.refill()
        return self.from_string(source)

    def rendered(self, template: jinja2.Template, variables: dict[str, object]) -> str:
        """Raises jinja2.TemplateError, or whatever Python error the template's own code runs into."""
        self.budget.refill()
        return template.render(variables)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Pass what loops, what is joined, and what goes into and comes out of a filter through the budget."""
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            if loop.recursive:
                raise jinja2.TemplateSyntaxError("recursive loops are not supported", loop.lineno)
        return _Metering().visit(tree)  # type: ignore[no-any-return]

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = __self.budget
        owner = getattr(__obj, "__self__", None)
        budget.value(owner)
        for argument in args:
            budget.value(argument)
        if isinstance(owner, str) and args:
            match getattr(__obj, "__name__", ""):
                case "replace":
                    _charge_replace(budget, owner, *args)
                case "join":
                    _charge_join(budget, owner, args[0])
        return super().call(__context, __obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str | int | bytes) and attr in _REFUSED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` without format specifications: one can ask for a width of gigabytes."""
        sandboxed = super().wrap_str_format(value)
        if sandboxed is None:
            return None
        pattern = str(value.__self__)
        if re.search(r"\{[^{}]*[:\[.{]", pattern):
            raise SecurityError("str.format is supported for plain {} fields only")

        def plain_format(*args: Any, **kwargs: Any) -> str:
            longest = max((len(str(part)) for part in (*args, *kwargs.values())), default=0)
            self.budget.text(len(pattern) + pattern.count("{") * longest)
            return sandboxed(*args, **kwargs)

        return plain_format

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.budget.value(left)
        self.budget.value(right)
        match operator:
            case "*":
                self._check_product(left, right)
            case "**" if abs(right) * max(1, int(left).bit_length()) > _MOST_BITS:
                raise BudgetError("it raises to a power beyond reason")
            case "%" if isinstance(left, str | bytes):
                raise jinja2.TemplateError("formatting with % is not supported")
        return super().call_binop(context, operator, left, right)

    def _check_product(self, left: object, right: object) -> None:
        for text, times in ((left, right), (right, left)):
            if isinstance(text, str | list | tuple | bytes) and isinstance(times, int):
                self.budget.text(len(text) * max(0, times))
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _MOST_BITS:
            raise BudgetError("it makes numbers beyond reason")

    def _finalize(self, value: object) -> object:
        self.budget.value(value)
        return value

    def _loop(self, values: Iterable[object]) -> Iterator[object]:
        for value in values:
            self.budget.value(value)
            yield value

    @jinja2.pass_context
    def _map(self, context: jinja2.runtime.Context, values: Iterable[object], *args: Any, **kwargs: Any) -> Any:
        for value in sync_do_map(context, values, *args, **kwargs):
            self.budget.value(value)
            yield value

    def _weigh(self, value: object) -> object:
        self.budget.value(value)
        return value

    def _join(self, values: Iterable[object], separator: str = "", attribute: str | int | None = None) -> str:
        items = [value if attribute is None else self.getitem(value, attribute) for value in values]
        texts = [str(item) for item in items]
        _charge_join(self.budget, separator, texts)
        return separator.join(texts)

    def _replace(self, text: object, old: str, new: str, count: int = -1) -> str:
        _charge_replace(self.budget, str(text), old, new)
        return str(text).replace(old, new, -1 if count is None else count)

    def _indent(self, text: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        prefix = width if isinstance(width, str) else " " * min(width, 1_000)
        lines = str(text).split("\n")
        self.budget.text(len(prefix) * len(lines))
        rest = [prefix + line if line or blank else line for line in lines[1:]]
        return "\n".join([prefix + lines[0] if first else lines[0], *rest])


class _Metering(NodeTransformer):
    """Wraps expressions of a parsed template in the filters that charge for them."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_loop")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:
        self.generic_visit(node)
        node.nodes = [_filtered(part, "_weigh") for part in node.nodes]
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:
        self.generic_visit(node)
        if node.node is not None:  # `None` at the head of a filter block, whose text is charged as it is written
            node.node = _filtered(node.node, "_weigh")
        return _filtered(node, "_weigh")


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    assert isinstance(node, nodes.Expr)
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _charge_replace(budget: Budget, text: str, old: object, new: object = "", *_: object) -> None:
    if isinstance(old, str) and isinstance(new, str):
        budget.text(len(text) + text.count(old) * len(new))


def _charge_join(budget: Budget, separator: str, values: object) -> None:
    if isinstance(values, list | tuple):
        budget.text(len(separator) * len(values) + sum(len(value) for value in values if isinstance(value, str)))


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > 30:
        raise BudgetError("it rounds to digits beyond reason")
    return do_round(value, precision, method)  # type: ignore[arg-type]


def _bounded_range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > _MOST_RANGE:
        raise BudgetError(f"it counts to more than {_MOST_RANGE:,}")
    return numbers


def _raise_exception(message: object) -> str:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter: a model was trained on `<`, not on `\\u003c`."""
    bounded = indent if indent is None else min(indent, 16)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=bounded, separators=separators, sort_keys=sort_keys)
