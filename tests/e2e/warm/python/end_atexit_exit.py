# sys.exit in atexit.
import atexit, sys
atexit.register(print, 'still called')
atexit.register(sys.exit, 5)
atexit.register(sys.exit, 'text')
