# What globals() holds at the start, in its order, and what kind of things those are.
print(list(globals()))
print(__name__, __doc__, __package__, __spec__, __cached__, __annotations__, __builtins__)
print(__file__)
print(type(__loader__), __loader__.name, __loader__.path, __loader__.get_filename('__main__'))
import sys
print(sys.modules['__main__'] is not None, vars(sys.modules['__main__']) is globals())
print(__loader__.get_source('__main__').splitlines()[0])
