# Context managers, exit stacks and generators left open at the end.
import contextlib
@contextlib.contextmanager
def cm(n):
    print('enter', n)
    try: yield n
    finally: print('leave', n)
stack = contextlib.ExitStack(); stack.enter_context(cm(1))
m = cm(2); m.__enter__()
with cm(3): pass
print('end')
