# No hook at all.
import sys
del sys.excepthook
1 / 0
