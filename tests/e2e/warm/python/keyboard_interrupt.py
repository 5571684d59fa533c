# KeyboardInterrupt that nobody catches: dies by SIGINT, after atexit.
import atexit
atexit.register(print, 'atexit')
raise KeyboardInterrupt('stop')
