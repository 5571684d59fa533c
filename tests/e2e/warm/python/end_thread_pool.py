# Executors that are not shut down.
from concurrent.futures import ThreadPoolExecutor
import time
pool = ThreadPoolExecutor(3)
futures = [pool.submit(lambda n=n: (time.sleep(0.1 * (n + 1)), print('job', n))) for n in range(4)]
print('end')
