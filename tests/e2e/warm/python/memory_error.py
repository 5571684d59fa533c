# Too much memory asked for.
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try: x = bytearray(8 << 30)
except MemoryError as e: print('MemoryError', e)
x = ' ' * (8 << 30)
