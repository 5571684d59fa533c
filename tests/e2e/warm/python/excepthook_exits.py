# A hook that exits.
import sys, atexit
atexit.register(print, 'atexit')
def hook(*a):
    print('hook'); sys.exit(12)
sys.excepthook = hook
1 / 0
