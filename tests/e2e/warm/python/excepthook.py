# sys.excepthook of the program's own.
import sys
def hook(kind, value, trace):
    print('hook', kind.__name__, value, trace.tb_lineno, sys.last_value is value, sys.last_exc is value)
sys.excepthook = hook
raise ValueError('x')
