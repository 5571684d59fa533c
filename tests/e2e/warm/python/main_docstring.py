"""The module's own docstring."""
import __main__
print(__doc__, __main__.__doc__ is __doc__)
x: int = 3
def f(a: int) -> str: ...
print(__annotations__, f.__annotations__)
print(__main__.x, __main__ is __import__('sys').modules['__main__'])
