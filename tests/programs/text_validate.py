# Validates records with pydantic and prints the good and the bad ones as a rich table.
# prints: Valid: 2, invalid: 2
# prints: age: Input should be greater than or equal to 0
import json

from pydantic import BaseModel, Field, ValidationError, field_validator
from rich.console import Console
from rich.table import Table


class User(BaseModel):
    name: str = Field(min_length=2)
    age: int = Field(ge=0, le=150)
    email: str

    @field_validator("email")
    @classmethod
    def has_an_at(cls, value: str) -> str:
        if "@" not in value:
            raise ValueError("no @ in the address")
        return value.lower()


records = json.loads("""[
    {"name": "Ada", "age": 36, "email": "ADA@example.org"}, {"name": "Bob", "age": "41", "email": "bob@example.org"},
    {"name": "Cy", "age": -3, "email": "cy@example.org"}, {"name": "Dee", "age": 20, "email": "nowhere"}
]""")
valid, errors = [], []
for record in records:
    try:
        valid.append(User.model_validate(record))
    except ValidationError as error:
        errors += [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]

table = Table(title="Users")
for column in ("name", "age", "email"):
    table.add_column(column)
for user in valid:
    table.add_row(user.name, str(user.age), user.email)
Console(width=60).print(table)
print(f"Valid: {len(valid)}, invalid: {len(records) - len(valid)}")
print("\n".join(errors))
