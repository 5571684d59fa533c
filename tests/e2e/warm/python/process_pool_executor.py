# ProcessPoolExecutor on functions and classes of the program.
from concurrent.futures import ProcessPoolExecutor, as_completed
import dataclasses, math
@dataclasses.dataclass(frozen=True)
class Job:
    n: int
def run(job): return job.n, math.factorial(job.n)
def bad(x): raise ValueError(x)
if __name__ == '__main__':
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(run, [Job(i) for i in range(5)])))
        try: pool.submit(bad, 'x').result()
        except ValueError as e: print(repr(e), '_RemoteTraceback' in repr(e.__cause__))
        print(sorted(f.result() for f in as_completed([pool.submit(run, Job(3)), pool.submit(run, Job(2))])))
