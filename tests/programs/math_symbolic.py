# Solves equations, a limit and an integral symbolically with sympy.
# prints: Roots: [-1, 2, 3]
# prints: Integral: sqrt(pi)
# prints: y(t) = exp(-2*t)
import sympy as sp

x, t = sp.symbols("x t", real=True)
y = sp.Function("y")

polynomial = sp.expand((x - 2) * (x - 3) * (x + 1))
print("Polynomial:", polynomial)
print("Roots:", sorted(sp.solve(polynomial, x)))
print("Derivative:", sp.factor(sp.diff(polynomial, x)))
print("Limit:", sp.limit(sp.sin(x) / x, x, 0))
print("Integral:", sp.integrate(sp.exp(-(x**2)), (x, -sp.oo, sp.oo)))
solution = sp.dsolve(sp.Eq(y(t).diff(t), -2 * y(t)), y(t), ics={y(0): 1})
print(f"{solution.lhs} = {solution.rhs}")
print(sp.pretty(sp.Integral(1 / x, x), use_unicode=True))
