# Definitions that look at their own module.
import typing, dataclasses, enum, abc, functools, contextlib, inspect
@dataclasses.dataclass(order=True)
class A:
    x: int
    y: 'B' = None
    z: list['A'] = dataclasses.field(default_factory=list)
class B(typing.NamedTuple):
    a: int = 1
class D(typing.TypedDict):
    k: typing.Optional['A']
print(typing.get_type_hints(A), typing.get_type_hints(D), inspect.signature(A))
print(A(1) < A(2), A(1), B(), A.__module__)
T = typing.TypeVar('T')
class G(typing.Generic[T]): ...
print(G[int], typing.get_args(G[int]))
type Alias = list[A]
print(Alias.__value__, Alias.__module__)
class F(enum.Flag): X = enum.auto(); Y = enum.auto()
print(F.X | F.Y, list(F))
@functools.singledispatch
def s(x): return 'any'
@s.register
def _(x: int): return 'int'
print(s(1), s('x'))
def doc():
    """
    >>> 1 + 1
    3
    """
import doctest
print(doctest.testmod())
