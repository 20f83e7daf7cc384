"""Hypothesis strategies for every kind of record, derived from the types of its fields: new ones are covered too."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Final, get_args

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from stackscope.records import AnyRecord

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

RECORD_KINDS: Final = get_args(AnyRecord)

_INTEGERS = st.integers(min_value=-(2**63), max_value=2**64 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _INTEGERS | _FLOATS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def records(kind: type[msgspec.Struct] | None = None) -> SearchStrategy[AnyRecord]:
    """Any record, or any of one kind, with arbitrary values in every field."""
    return st.one_of([_of(inspect.type_info(each)) for each in ((kind,) if kind is not None else RECORD_KINDS)])


def _of(kind: inspect.Type) -> SearchStrategy:
    match kind:
        case inspect.IntType(ge=least, le=most) if least is not None and most is not None:
            return st.integers(least, most)
        case inspect.IntType():
            return _INTEGERS
        case inspect.FloatType():
            return _FLOATS
        case inspect.StrType():
            return st.text(max_size=12)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType() | inspect.CustomType(cls=builtins.object):
            return _JSON
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.UnionType(types=types):
            return st.one_of([_of(each) for each in types])
        case inspect.TupleType(item_types=items):
            return st.tuples(*[_of(each) for each in items])
        case inspect.VarTupleType(item_type=item):
            return st.lists(_of(item), max_size=3).map(tuple)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=3)
        case inspect.StructType(cls=cls, fields=fields):
            return _struct(cls, fields)
    raise NotImplementedError(f"no strategy for {kind}")


def _struct(cls: type[msgspec.Struct], fields: tuple[inspect.Field, ...]) -> SearchStrategy:
    if cls.__struct_config__.array_like:
        return st.tuples(*[_of(each.type) for each in fields]).map(lambda values: cls(*values))
    required = {each.name: _of(each.type) for each in fields if each.required}
    optional = {each.name: _of(each.type) for each in fields if not each.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: cls(**values))
