"""The floor of a warm run: a process that has imported what people import, forks for each code, waits for its death.

What a warm run costs when nothing is done but the run, by the plain means of the language: nobody has tuned its memory
for forking. It must never do more: no session, files, limits, nor a look at what the code left behind. In: four bytes
of length, code. Out: what the code prints, NUL, its exit code, a newline. NUL and `ready` come once, at the start.
With the argument `bare` it has imported nothing: what the fork, the run and the end of a small process cost.
"""

import gc
import os
import sys
import traceback

# Arrow's allocator, which pandas loads, has a thread of its own else; a process that forks must have none.
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"

if "bare" not in sys.argv:
    import matplotlib.pyplot
    import numpy
    import pandas
    import seaborn


def exactly(count):
    read = b""
    while len(read) < count:
        piece = os.read(0, count - len(read))
        if not piece:
            os._exit(0)
        read += piece
    return read


def become(code):
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    status = 1
    try:
        exec(compile(code, "<code>", "exec"), vars(sys.modules["__main__"]))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


gc.collect()
gc.freeze()
os.write(1, b"\0ready\n")
while True:
    code = exactly(int.from_bytes(exactly(4), "big"))
    child = os.fork()
    if child == 0:
        become(code)
    status = os.waitpid(child, 0)[1]
    os.write(1, b"\0%d\n" % os.waitstatus_to_exitcode(status))
