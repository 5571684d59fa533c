# A future statement in its place, and what it does.
from __future__ import annotations
import typing, dataclasses
@dataclasses.dataclass
class P:
    x: int
    y: 'list[P] | None' = None
print(P.__annotations__, typing.get_type_hints(P), P(1), dataclasses.asdict(P(1, [P(2)])))
def f(a: P) -> None: ...
print(typing.get_type_hints(f))
