# A syntax error.
def f(:
    pass
