# atexit's list run by the program itself.
import atexit
atexit.register(print, 'a')
atexit._run_exitfuncs()
atexit.register(print, 'b')
f = open('/data/x', 'w'); f.write('x')
print('end')
