# The program crashes, with faulthandler on.
import faulthandler, resource, ctypes
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
faulthandler.enable(all_threads=False)
import sys
sys.stderr = None
faulthandler.disable()
ctypes.string_at(1)
