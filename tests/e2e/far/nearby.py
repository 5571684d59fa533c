# Tries to use the network of another run of the same session. It stands behind lines that set ADDRESS, NEAR, and OWN:
# whether this run has a network of its own. The other run gives its sockets to anybody, at /tmp/give.
import ctypes, errno, glob, os, socket, urllib.parse

libc = ctypes.CDLL(None, use_errno=True)


def tried(what, do, *arguments):
    try:
        print(what, "went through:", do(*arguments))
    except OSError as error:
        print(what, "failed:", errno.errorcode.get(error.errno, error))
    except Exception as error:
        print(what, "failed:", type(error).__name__, error)


def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")
    return result


def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 16)


mine = os.environ.get("http_proxy", "").encode()
assert bool(mine) == OWN


def credentials():
    """The credentials of others, wherever processes show them."""
    found = []
    for name in ("environ", "cmdline", "stat", "maps"):
        for path in glob.glob(f"/proc/[0-9]*/task/[0-9]*/{name}") + glob.glob(f"/proc/[0-9]*/{name}"):
            try:
                text = read(path)
            except OSError:
                continue
            found += [path for line in text.split(b"\0") if b"run:" in line and (not mine or mine not in line)]
    if found:
        return found
    raise Exception("none")


tried("credentials", credentials)
others = [int(os.path.basename(path)) for path in glob.glob("/proc/[0-9]*")]
others = [pid for pid in others if os.path.exists(f"/tmp/{pid}.py") and pid != os.getpid()]
assert others, "the other run is not to be seen"
for pid in others:
    tried("environment", read, f"/proc/{pid}/environ")
    tried("memory", read, f"/proc/{pid}/mem")
    tried("a descriptor's name", os.readlink, f"/proc/{pid}/fd/3")
    tried("a descriptor", os.open, f"/proc/{pid}/fd/3", os.O_RDWR)
    tried("root", os.listdir, f"/proc/{pid}/root")
    tried("taken descriptor", lambda: call(438, os.pidfd_open(pid), 3, 0))
    tried("trace", call, 101, 16, pid, 0, 0)
    buffer = ctypes.create_string_buffer(16)
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 16)
    tried("read memory", call, 310, pid, vector, 1, vector, 1, 0)
    tried("write memory", call, 311, pid, vector, 1, vector, 1, 0)

# A socket that the other run made, connected here: this run's policy.
give = socket.socket(socket.AF_UNIX)
give.connect("/tmp/give")
_, fds, _, _ = socket.recv_fds(give, 1, 2)
fresh = socket.socket(fileno=fds[1])
fresh.settimeout(5)
tried("a socket of the other", fresh.connect, (ADDRESS, 7))
for host in ("far.example", ADDRESS):
    tried(f"connect {host}", socket.create_connection, (host, 7), 5)
print("done")
