# Pools by every start method, on a function of the program.
import multiprocessing as mp, os, sys
def square(x): return x * x
def who(_): return mp.current_process().name.split('-')[0], mp.parent_process() is not None, getattr(sys, 'imported_as', None)
if __name__ == '__main__':
    print(mp.get_start_method(), mp.current_process(), mp.parent_process(), mp.active_children())
    for how in ('fork', 'spawn', 'forkserver'):
        with mp.get_context(how).Pool(2) as pool:
            print(how, pool.map(square, range(5)), pool.apply(who, (0,)), sum(pool.imap_unordered(square, range(10))))
else:
    sys.imported_as = __name__, os.path.basename(__file__)
