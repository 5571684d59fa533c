# Objects kept by sys, builtins and libraries.
import sys, builtins, gc
class D:
    def __init__(self, n): self.n = n
    def __del__(self): print('gone', self.n)
builtins.thing = D('builtins'); builtins._ = D('_')
sys.path.append(D('path')); sys.ps1 = D('ps1'); sys.argv.append(D('argv')); sys.thing = D('sys')
sys.excepthook = D('hook'); sys.stdout.thing = D('stdout')
print('end')
