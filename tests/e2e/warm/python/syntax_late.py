# Errors found after parsing.
def f():
    x = 1
    nonlocal y
