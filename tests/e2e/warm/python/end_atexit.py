# atexit: order, arguments, errors, unregister, registering while they run, printing.
import atexit, sys
atexit.register(print, 'first registered, last called', sep='')
@atexit.register
def second(): print('second', sys.is_finalizing(), __name__, '__file__' in globals())
def gone(): print('never')
atexit.register(gone); atexit.unregister(gone)
atexit.register(int, 'x')
atexit.register(lambda: atexit.register(print, 'registered late'))
f = open('/data/x', 'w')
atexit.register(f.write, 'from atexit')
def importing():
    import decimal, threading
    print(decimal.Decimal(1), threading.current_thread().name)
atexit.register(importing)
