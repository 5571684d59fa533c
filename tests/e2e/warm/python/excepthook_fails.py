# A hook that fails itself.
import sys
def hook(*a): return undefined
sys.excepthook = hook
1 / 0
