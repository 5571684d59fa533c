# The collector: on, its thresholds, callbacks, what it finds at the end.
import gc, sys
print(gc.isenabled(), gc.get_threshold(), gc.garbage, gc.get_debug(), gc.callbacks)
class N:
    def __del__(self): print('del')
n = N(); n.n = n; del n
print(gc.collect() > 0)
n = N(); n.n = n; del n
gc.disable()
gc.set_debug(0)
