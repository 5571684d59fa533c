# Executors that are not shut down.
from concurrent.futures import ThreadPoolExecutor
import threading
pool, futures, ends = ThreadPoolExecutor(3), [], threading.Event()
def job(n): ends.wait() if n == 0 else futures[n - 1].result(); print('job', n)
for n in range(4): futures.append(pool.submit(job, n))
print('end'); ends.set()
