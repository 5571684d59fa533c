# A pool that is not closed, a process that is not joined.
import multiprocessing as mp, time
def work(n): time.sleep(0.1); print('process', n, flush=True)
if __name__ == '__main__':
    pool = mp.Pool(2)
    print(pool.map(abs, [-1, -2]))
    mp.Process(target=work, args=(1,)).start()
    print('end')
