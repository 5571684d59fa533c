# Processes, queues, pipes, locks, shared memory, errors, exit codes.
import multiprocessing as mp, sys, os
def child(q, n): q.put((n, os.getcwd(), sys.argv[0] == __file__)); sys.exit(n)
def fails(): raise ValueError('in a process')
if __name__ == '__main__':
    q = mp.Queue(); p = mp.Process(target=child, args=(q, 3)); p.start()
    print(q.get()); p.join(); print(p.exitcode, p.name)
    p = mp.Process(target=fails, name='P'); p.start(); p.join(); print(p.exitcode)
    a, b = mp.Pipe(); a.send({'x': 1}); print(b.recv())
    v = mp.Value('i', 0); l = mp.Lock(); arr = mp.Array('d', [1, 2])
    def add():
        for _ in range(100):
            with l: v.value += 1
    ps = [mp.Process(target=add) for _ in range(3)]
    [p.start() for p in ps]; [p.join() for p in ps]
    print(v.value, arr[:])
    with mp.Manager() as m:
        d = m.dict(); d['k'] = 1; print(dict(d))
    from multiprocessing import shared_memory
    s = shared_memory.SharedMemory(create=True, size=10); s.buf[0] = 7; print(s.buf[0]); s.close(); s.unlink()
    p = mp.Process(target=__import__('time').sleep, args=(30,), daemon=True); p.start()
    print(p.is_alive())
