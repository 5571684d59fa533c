"""Runs the statements of a file with DuckDB and prints the result of each: sql.py FILE.

Tables are in /data/tables.duckdb if a statement made any, so that the next program of the session finds them; CSV, JSON and
Parquet files of /data are tables by their names ('sales.csv'). It must never print half a table without saying so.
"""

import os
import sys

import duckdb

DATABASE = "/data/tables.duckdb"
MOST = 200  # rows that are printed of each result


def show(result):
    rows = result.fetchmany(MOST + 1)
    names = [column[0] for column in result.description]
    cells = [names, *([("NULL" if value is None else str(value)) for value in row] for row in rows[:MOST])]
    widths = [max(len(row[at]) for row in cells) for at in range(len(names))]
    for at, row in enumerate(cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        if at == 0:
            print("  ".join("-" * width for width in widths))
    if len(rows) > MOST:
        print(f"(only the first {MOST} rows are printed; COPY (SELECT …) TO 'result.csv' saves all)")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        code = file.read()
    is_new = not os.path.exists(DATABASE)
    connection = duckdb.connect(DATABASE)
    # The container has one processor, and its memory is limited: what does not fit goes to files.
    connection.execute("SET threads = 1; SET memory_limit = '256MiB'; SET temp_directory = '/data/.duckdb'")
    try:
        for statement in connection.extract_statements(code):
            result = connection.execute(statement)
            if statement.type == duckdb.StatementType.SELECT or statement.type.name in ("EXPLAIN", "PRAGMA", "CALL"):
                show(result)
            sys.stdout.flush()
        has_tables = connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone()[0] > 0
        has_views = connection.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchone()[0] > 0
    except duckdb.Error as error:
        sys.stdout.flush()
        sys.exit(str(error))
    finally:
        connection.close()
    if is_new and not has_tables and not has_views:
        os.remove(DATABASE)


main()
