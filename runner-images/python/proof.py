# The proof of a snapshot (../README.md, "A snapshot of the warm part"). paddock runs this program once as the entrypoint does,
# and once in a restored process, before that serves anyone: exit code and output must be equal. It uses what would break first
# if memory, threads, time, signals or the C library were not as in a new process, so it must print only what is the same each
# time. Its first words compare the random states and ids of this process with those of its own children.
import ctypes
import decimal
import gc
import getpass
import hashlib
import io
import json
import locale
import math
import mmap
import multiprocessing
import os
import random
import resource
import secrets
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zoneinfo
from concurrent.futures import ThreadPoolExecutor


def say(what, *values):
    print(what, *values, flush=True)


def status(name):
    with open("/proc/self/status") as lines:
        return next(line.split(":", 1)[1].split() for line in lines if line.startswith(name + ":"))


# Who this process is.
own = os.getpid()
with open("/proc/self/stat") as stat:
    fields = stat.read().rsplit(")", 1)[1].split()
say("ids", fields[1] == str(os.getppid()), status("Pid") == [str(own)], threading.get_native_id() == own)
say("session", os.getsid(0) == own, int(status("Threads")[0]), threading.main_thread() is threading.current_thread())
say("user", os.getuid() == os.geteuid() == int(os.environ.get("UID", os.getuid())), os.getgid() == os.getegid())
try:
    say("name", getpass.getuser() == f"sandbox{os.getuid()}")
except (KeyError, OSError):
    say("name", None)  # the image names the user ids of the daemon's default range, and an operator may choose others
libc = ctypes.CDLL(None, use_errno=True)
libc.getauxval.restype = ctypes.c_ulong
libc.getauxval.argtypes = [ctypes.c_ulong]
say("auxv", libc.getauxval(11) == os.getuid(), libc.getauxval(13) == os.getgid(), libc.getauxval(6) == mmap.PAGESIZE, libc.getauxval(23))
say("files", os.getcwd(), os.path.basename(os.readlink("/proc/self/exe")), open("/proc/self/comm").read().strip())
with open("/proc/self/cmdline", "rb") as line:
    say("command", [os.path.basename(word) for word in line.read().split(b"\0")])
say("environment", os.environ["HOME"], os.getenv("LANG"), "LD_AUDIT" in os.environ, "GLIBC_TUNABLES" in os.environ, "SANDBOX_SNAPSHOT" in os.environ)
say("same", all(libc.getenv(name.encode()) for name in os.environ), subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout.count("LD_AUDIT"))
say("signals", status("SigBlk"), status("SigIgn"), status("SigCgt"), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
say("locale", locale.getlocale(), locale.setlocale(locale.LC_ALL, ""), sys.getfilesystemencoding(), "é→😀".encode().hex())
say("limits", resource.getrlimit(resource.RLIMIT_STACK)[0] == resource.getrlimit(resource.RLIMIT_STACK)[0], sys.getrecursionlimit())


# Random states: this process, and a child of it.
def numbers():
    import numpy  # a child of a process that has numpy shares the state of numpy.random.random()

    return [random.random(), secrets.token_hex(8), os.urandom(8).hex(), uuid.uuid4().hex,
            numpy.random.default_rng().random(), ssl.RAND_bytes(8).hex(), os.getrandom(8).hex(), tempfile.mktemp()]


def child_numbers(pipe):
    pipe.send(numbers())


ends = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=child_numbers, args=(ends[1],))
child.start()
mine, other = numbers(), ends[0].recv()
child.join()
say("random", [a != b for a, b in zip(mine, other)], [a != b for a, b in zip(mine, numbers())])
buffers = {os.getrandom(16) for _ in range(1000)}
say("getrandom", len(buffers), len({random.SystemRandom().getrandbits(64) for _ in range(1000)}))
say("hash", hash("word") == hash("wo" + "rd"), {"a": 1}["a"], len({str(n) for n in range(10000)}))

# Time goes on, in all clocks.
clocks = [time.time, time.monotonic, time.perf_counter, time.process_time, lambda: time.clock_gettime(time.CLOCK_BOOTTIME)]
before = [clock() for clock in clocks]
sum(n * n for n in range(200_000))
time.sleep(0.01)
say("clocks", [clock() > then for clock, then in zip(clocks, before)], abs(time.time() - os.stat("/proc/self").st_mtime) < 3600)
say("zone", time.tzname, zoneinfo.ZoneInfo("Europe/Berlin").key)

# Signals, timers, a second stack.
caught = []
signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(number))
signal.signal(signal.SIGALRM, lambda number, frame: caught.append(number))
os.kill(own, signal.SIGUSR1)
signal.setitimer(signal.ITIMER_REAL, 0.01)
while len(caught) < 2:
    time.sleep(0.01)
say("caught", [signal.Signals(number).name for number in caught])
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    say("interrupt")

# Threads, locks, processes.
with ThreadPoolExecutor(8) as pool:
    say("threads", sum(pool.map(lambda n: math.factorial(n) % 7, range(200))), threading.active_count() > 1)
idents = set()
threads = [threading.Thread(target=lambda: idents.add(threading.get_native_id())) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
say("native ids", own not in idents, int(status("Threads")[0]))
say("subprocess", subprocess.run(["/bin/sh", "-c", "echo $((6 * 7)); exit 3"], capture_output=True, text=True))
say("python", subprocess.run([sys.executable, "-P", "-c", "import numpy; print(numpy.arange(4).sum())"], capture_output=True, text=True).stdout)
code = os.fork()
if code == 0:
    os._exit(9)
say("fork", os.waitstatus_to_exitcode(os.waitpid(code, 0)[1]))

# Memory: the heap, its break, large blocks, a deep stack.
libc.sbrk.restype = ctypes.c_void_p
libc.sbrk.argtypes = [ctypes.c_long]
at = libc.sbrk(0)
say("break", libc.sbrk(1 << 20) == at, libc.sbrk(0) == at + (1 << 20), libc.sbrk(-(1 << 20)) == at + (1 << 20))
blocks = [bytearray(n * 100_003) for n in range(1, 60)]
say("blocks", sum(len(block) for block in blocks), not any(any(block[::4096]) for block in blocks))
say("objects", len([{"n": n, "s": str(n)} for n in range(200_000)]), gc.collect() >= 0)
del blocks


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


say("stack", deep(900), len(json.loads("[" * 900 + "]" * 900)))
try:
    deep(100_000)
except RecursionError:
    say("too deep")
shared = mmap.mmap(-1, 1 << 20)
shared[:5] = b"hello"
say("mmap", shared[:5], len(shared))

# Files, sockets, databases, hashes.
with tempfile.TemporaryDirectory() as place:
    path = os.path.join(place, "x")
    with open(path, "w") as file:
        file.write("text\n" * 10_000)
    say("file", os.path.getsize(path), hashlib.sha256(open(path, "rb").read()).hexdigest()[:16])
one, two = socket.socketpair()
one.sendall(b"through")
say("socket", two.recv(20), sorted(os.listdir("/proc/self/fd"))[:3])
say("sqlite", sqlite3.connect(":memory:").execute("select sqlite_version() > '3', sum(value) from json_each('[1, 2, 3]')").fetchall())
context = ssl.create_default_context()
say("tls", context.verify_mode.name, len(context.get_ca_certs()) > 20, context.minimum_version.name)
say("decimal", decimal.Decimal(2).sqrt(), math.fsum([0.1] * 10), float("1e-310") > 0)

# The libraries that are imported already, and some that are not yet.
import numpy
import pandas
import pyarrow
import matplotlib.pyplot as plt
import lxml.etree

say("numpy", numpy.linalg.solve(numpy.eye(40) * 2, numpy.ones(40)).sum(), (numpy.ones((200, 300)) @ numpy.ones((300, 200))).sum(), numpy.fft.fft(numpy.arange(8)).real.sum())
say("errors", numpy.geterr()["divide"], numpy.float64(1) / 3)
frame = pandas.DataFrame({"k": list("abc") * 100, "v": range(300), "t": pandas.date_range("2024-01-01", periods=300, freq="h")})
say("pandas", frame.groupby("k").v.sum().to_dict(), frame.set_index("t").v.resample("D").mean().round(1).tolist()[:3])
buffer = io.BytesIO()
frame.to_parquet(buffer)
say("parquet", pandas.read_parquet(buffer).equals(frame), pyarrow.array([1, 2, None]).null_count)
figure, axes = plt.subplots()
axes.plot([1, 2, 3])
axes.set_title("é→ Ω")
buffer = io.BytesIO()
figure.savefig(buffer, format="png")
plt.close(figure)
say("plot", buffer.getvalue()[:4], len(buffer.getvalue()) > 5000)
try:
    lxml.etree.fromstring("<a><b></a>")
except lxml.etree.XMLSyntaxError as error:
    say("xml", error.position)
try:
    pyarrow.Table.from_pydict({"a": [1, "x"]})  # an exception of C++
except pyarrow.ArrowInvalid as error:
    say("arrow", type(error).__name__)
try:
    pyarrow.parquet.read_table("/nowhere")
except FileNotFoundError as error:
    say("missing", error.errno)

import duckdb
import polars
import scipy.signal
import sklearn.linear_model
import sympy
from cryptography.fernet import Fernet

say("duckdb", duckdb.sql("select sum(range) from range(1000)").fetchall())
try:
    duckdb.sql("select * from nothing")
except duckdb.CatalogException as error:
    say("duckdb", type(error).__name__)
say("polars", polars.DataFrame({"a": [1, 2, 3]}).select(polars.col("a").sum()).item())
say("scipy", scipy.signal.convolve([1, 2, 3], [0, 1, 0.5]).tolist())
model = sklearn.linear_model.LinearRegression().fit([[0], [1], [2]], [0, 2, 4])
say("sklearn", model.coef_.round(6).tolist())
say("sympy", sympy.integrate(sympy.Symbol("x") ** 2))
key = Fernet(Fernet.generate_key())
say("fernet", key.decrypt(key.encrypt(b"secret")))
say("end")
sys.exit(7)
