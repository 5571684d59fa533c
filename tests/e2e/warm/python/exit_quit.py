# exit() and quit().
import atexit
atexit.register(print, 'atexit')
quit(4)
