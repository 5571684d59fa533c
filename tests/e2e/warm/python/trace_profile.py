# Tracing, profiling, coverage of the program's own lines.
import sys, cProfile, pstats, io, tracemalloc, timeit
lines = []
def f(a):
    b = a + 1
    return b
sys.settrace(lambda fr, ev, arg: (lines.append((fr.f_code.co_name, ev, fr.f_lineno)), sys.gettrace())[1]); f(1); sys.settrace(None)
print(lines)
p = cProfile.Profile(); p.runcall(f, 1); s = io.StringIO(); pstats.Stats(p, stream=s).print_stats(); print('(f)' in s.getvalue())
tracemalloc.start(); x = bytearray(10 ** 6); print(tracemalloc.get_traced_memory()[0] >= 10 ** 6); tracemalloc.stop()
print(timeit.timeit('1', number=10) >= 0)
