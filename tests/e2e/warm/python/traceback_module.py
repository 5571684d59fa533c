# traceback, inspect and warnings, which look at the frames beneath.
import traceback, inspect, sys, warnings
def f():
    traceback.print_stack(file=sys.stdout)
    print(len(inspect.stack()), [s.function for s in inspect.stack()], inspect.stack()[-1].code_context)
    print(sys._getframe(1).f_back, sys._getframe(1).f_code.co_name)
    try: sys._getframe(2)
    except ValueError as e: print(e)
    warnings.warn('far up', stacklevel=5)
    warnings.warn('mine')
    warnings.warn('my caller', stacklevel=2)
f()
print(traceback.format_stack())
print(len(traceback.extract_stack()), len(sys._current_frames()), inspect.currentframe().f_back)
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
    print(traceback.format_exc())
    print(sys.exc_info()[2].tb_lineno, sys.exc_info()[2].tb_next)
print(sys.exc_info())
print(inspect.getsource(f).splitlines()[0], inspect.getsourcefile(f) == __file__, inspect.getmodule(f).__name__)
