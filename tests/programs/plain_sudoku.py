# Solves a sudoku by backtracking over the cell with the fewest candidates.
# prints: 5 3 4 | 6 7 8 | 9 1 2
# prints: Solved: True
puzzle = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
grid = [[int(puzzle[9 * row + column]) for column in range(9)] for row in range(9)]


def candidates(row, column):
    used = set(grid[row]) | {grid[r][column] for r in range(9)}
    top, left = row // 3 * 3, column // 3 * 3
    used |= {grid[r][c] for r in range(top, top + 3) for c in range(left, left + 3)}
    return [n for n in range(1, 10) if n not in used]


def solve():
    empty = [(r, c) for r in range(9) for c in range(9) if grid[r][c] == 0]
    if not empty:
        return True
    row, column = min(empty, key=lambda cell: len(candidates(*cell)))
    for n in candidates(row, column):
        grid[row][column] = n
        if solve():
            return True
        grid[row][column] = 0
    return False


solved = solve()
for index, row in enumerate(grid):
    if index in (3, 6):
        print("------+-------+------")
    print(" | ".join(" ".join(map(str, row[i : i + 3])) for i in (0, 3, 6)))
print("Solved:", solved)
