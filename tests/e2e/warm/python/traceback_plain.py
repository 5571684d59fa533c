# An error three calls deep.
def f(x):
    return g(x) + 1
def g(x):
    return [1 / y for y in x]
class C:
    def m(self): return f([1, 0])
C().m()
