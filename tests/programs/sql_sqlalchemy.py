# Maps classes to tables with SQLAlchemy and reads a query into pandas.
# prints: Le Guin has 2 books
# prints: 1  Piranesi   Clarke  2020
# makes: library.db
import os

import pandas as pd
from sqlalchemy import ForeignKey, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

if os.path.exists("/data/library.db"):
    os.remove("/data/library.db")


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    books: Mapped[list["Book"]] = relationship(back_populates="author")


class Book(Base):
    __tablename__ = "books"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    year: Mapped[int]
    author_id: Mapped[int] = mapped_column(ForeignKey("authors.id"))
    author: Mapped[Author] = relationship(back_populates="books")


engine = create_engine("sqlite:////data/library.db")
Base.metadata.create_all(engine)
with Session(engine) as session:
    le_guin = Author(name="Le Guin", books=[Book(title="The Dispossessed", year=1974), Book(title="Tehanu", year=1990)])
    session.add_all([le_guin, Author(name="Clarke", books=[Book(title="Piranesi", year=2020)])])
    session.commit()
    for name, n in session.execute(select(Author.name, func.count(Book.id)).join(Book).group_by(Author.id)):
        print(f"{name} has {n} books")

df = pd.read_sql("SELECT title, name AS author, year FROM books JOIN authors ON authors.id = author_id WHERE year > 1980 ORDER BY year", engine)
print(df.to_string(header=False))
