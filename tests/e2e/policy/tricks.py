# Attempts to bypass a policy that no shell offers. Prints "bad" for each that succeeds.
import ctypes, errno, os, socket, stat, struct, threading, time

libc = ctypes.CDLL(None, use_errno=True)
CWD, EMPTY, NOFOLLOW, FOLLOW = -100, 0x1000, 0x100, 0x400
O_PATH, O_TMPFILE = os.O_PATH, os.O_TMPFILE


def call(number, *args):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "syscall %d" % number)
    return result


def no(what, act, *args, errnos=(errno.EACCES,), **named):
    try:
        act(*args, **named)
    except OSError as error:
        if error.errno not in errnos:
            print("bad: %s: %r, not %s" % (what, error, [errno.errorcode[e] for e in errnos]))
    else:
        print("bad: went through:", what)


def content(path):
    with open(path) as file:
        return file.read()


def put(path, text="new", **named):
    with open(path, "w", **named) as file:
        file.write(text)


W, R, C = os.O_WRONLY, os.O_RDONLY, os.O_CREAT
here = os.open(".", R)
deep = os.open("a/b", O_PATH)
env = os.open(".env", R)
env_path = os.open(".env", O_PATH)

# Directory descriptors, descriptors of the file itself, the paths in /proc.
no("dir_fd", os.open, ".env", W, dir_fd=here)
no("deep dir_fd", os.open, "x.key", W, dir_fd=deep)
no("dir_fd and ..", os.open, "../../.env", W, dir_fd=deep)
for fd in (env, env_path):
    for form in ("/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d", "/proc/self/task/../fd/%d"):
        no(form % fd, os.open, form % fd, W)
    no("link of a descriptor", os.link, "/proc/self/fd/%d" % fd, "l", src_dir_fd=here, follow_symlinks=True)
no("cwd of proc", os.open, "/proc/%d/cwd/.env" % os.getpid(), W)
no("root of proc", os.open, "/proc/self/root/../data/.env", W)
no("truncating read", os.open, ".env", R | os.O_TRUNC)
no("mode 3", os.open, ".env", 3)
no("creat", call, 85, b".env", 0o600)
no("open", call, 2, b".env", W, 0)
no("openat2", call, 437, CWD, b".env", struct.pack("QQQ", W, 0, 0), 24, errnos=(errno.ENOSYS,))
no("fchmod", os.fchmod, env, 0o777)
no("fchown", os.fchown, env, os.getuid(), os.getgid())
no("futimens", os.utime, env)
no("fchmodat2 of O_PATH", call, 452, env_path, b"", 0o777, EMPTY, errnos=(errno.EACCES, errno.EPERM))
no("fchownat of O_PATH", call, 260, env_path, b"", os.getuid(), os.getgid(), EMPTY)
no("utimensat of O_PATH", call, 280, env_path, b"", 0, EMPTY)
no("linkat of O_PATH", call, 265, env_path, b"", CWD, b"l", EMPTY)
no("chmod by proc", os.chmod, "/proc/self/fd/%d" % env, 0o777)
no("truncate", os.truncate, ".env", 0)
no("fsetxattr", os.setxattr, env, "user.x", b"1", errnos=(errno.EOPNOTSUPP,))
no("setxattr", os.setxattr, ".env", "user.x", b"1", errnos=(errno.EOPNOTSUPP,))
import fcntl
no("FS_IOC_SETFLAGS", fcntl.ioctl, env, 0x40086602, struct.pack("l", 0), errnos=(errno.EPERM,))

# Names: hard links, symbolic links, renames, exchanges.
no("link", os.link, ".env", "/tmp/l", errnos=(errno.EACCES,))
no("link to a denied name", os.link, "plain", "new.key")
no("a hard link from before", os.open, "hard", W)
no("a hard link from before, by chmod", os.chmod, "hard", 0o777)
put("second", "plain")  # both names of the file may be written
no("symlink to a denied name", os.symlink, "plain", "z.key")
no("rename to", os.rename, "plain", "q.key")
no("rename from", os.rename, ".env", "q")
no("rename over", os.replace, "plain", ".env")
no("exchange", call, 316, CWD, b"plain", CWD, b".env", 2)
no("exchange back", call, 316, CWD, b".env", CWD, b"plain", 2)
no("rename of a directory above", os.rename, "a", "/tmp/a", errnos=(errno.EACCES, errno.EXDEV))
no("rename of its directory", os.rename, "a/b", "a/c")
no("exchange of directories", call, 316, CWD, b"a", CWD, b"big", 2)
no("mknod", os.mknod, "n.key")
no("socket", socket.socket(socket.AF_UNIX).bind, "s.key")
no("removal", os.unlink, ".env")
no("removal by dir_fd", os.unlink, "x.key", dir_fd=deep)
os.symlink("/data/.env", "way")
os.symlink("later.key", "waylater")
no("through a link", os.open, "way", W)
no("through a dangling link", os.open, "waylater", W | C)
no("a link made denied", os.open, "dir/x.key", W)
no("a link out of where a name is denied", os.symlink, "/tmp", "tmp2")
no("a denied name by way of a link", os.open, "tmp/.env", W | C)
no("a denied name made by way of a link", os.mkdir, "tmp/x.key")
no("link not followed", os.open, "way", W | os.O_NOFOLLOW, errnos=(errno.ELOOP,))
no("exclusive", os.open, "way", W | C | os.O_EXCL, errnos=(errno.EEXIST,))
# A path that does not exist yet, through a directory that changes.
os.rename("conf", "conf2")
no("a link above a denied place", os.symlink, "conf2", "conf")
os.symlink("conf2", "harmless")
no("a link brought above it", os.rename, "harmless", "conf")
put("conf2/.x")
no("a directory brought above it", os.rename, "conf2", "conf")
os.mkdir("conf")
no("the place itself", os.open, "conf/.x", W | C)

# A pattern with `**`: a name .git never leads to another directory, however it comes to have that name.
os.makedirs("real/hooks")
put("real/hooks/pre-commit", "evil")
os.symlink("real", "alias")
for target in ("real", "./real", "/data/real", "/workspace/real", "../data/real", "/proc/self/cwd/real", "alias", "tmp", "/usr/lib"):
    no("a link .git to " + target, os.symlink, target, ".git")
no("a deeper one", os.symlink, "../../real", "a/b/.git")
no("by dir_fd", os.symlink, "../../real", ".git", dir_fd=deep)
no("a link that is renamed", os.rename, "alias", ".git")
no("a link that is linked", os.link, "alias", ".git", follow_symlinks=False)
no("a directory that is renamed", os.rename, "real", ".git")
no("its directory", os.makedirs, "fresh/.git/hooks")
os.mkdir(".git")
put(".git/config")
no("a link that is exchanged", call, 316, CWD, b"alias", CWD, b".git", 2)
no("a directory that is exchanged", call, 316, CWD, b"real", CWD, b".git", 2)
no("a file that is renamed", os.rename, "real/hooks/pre-commit", ".git/hooks")
no("the directory below", os.mkdir, ".git/hooks")
# One above it, made where nothing is denied, and reached or moved from there.
os.makedirs("/tmp/t/.git/hooks")
put("/tmp/t/.git/hooks/pre-commit", "evil")
os.symlink("/tmp/t", "/tmp/out")
os.mkdir("/tmp/d")
os.symlink("/tmp/t", "/tmp/d/out")
for target in ("/tmp/t", "/tmp/out", "../tmp/t", "a/../../tmp/t", "/proc/self/root/tmp/t", "tmp/t", "/"):
    no("a link out to " + target, os.symlink, target, "sub")
for path in ("/tmp/t", "/tmp/out", "/tmp/d"):
    no("what is brought in, " + path, os.rename, path, "sub")
for path in (".git", "a/b/.git", "sub", "sub/out", "sub/t"):
    if os.path.exists(path + "/hooks/pre-commit") or os.path.exists(path + "/.git/hooks/pre-commit"):
        print("bad: led round by", path)
# Names that lead to nothing denied are made and moved as usual.
for target, path in (("a/b", "in1"), ("../plain", "a/in2"), ("/usr/bin/env", "in3"), ("/usr/lib", "in4"), ("/dev/null", "in5")):
    os.symlink(target, path)
    os.rename(path, path + "x")
    os.unlink(path + "x")
os.makedirs("modules/.bin")
os.symlink("../package/cli", "modules/.bin/cli")
os.rename("modules", "node_modules")

# Files without a name.
fd = os.open(".", O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b"nameless")
no("naming it", os.link, "/proc/self/fd/%d" % fd, "t.key", src_dir_fd=here, follow_symlinks=True)
os.link("/proc/self/fd/%d" % fd, "named", src_dir_fd=here, follow_symlinks=True)
assert content("named") == "nameless" and stat.S_IMODE(os.stat("named").st_mode) == 0o640
no("nameless beyond", os.open, "/dev/shm", O_TMPFILE | os.O_RDWR)
memory = os.memfd_create("m")
os.write(os.open("/proc/self/fd/%d" % memory, os.O_RDWR), b"x")

# Reading a file that may not be read.
for path in (".ssh/id", "/workspace/.ssh/id", "/proc/self/cwd/.ssh/id", "/proc/self/root/mnt/data/.ssh/id"):
    no(path, os.open, path, R)
no("listing", os.listdir, ".ssh")
ssh = os.open(".ssh", O_PATH)
no("by O_PATH of its directory", os.open, "id", R, dir_fd=ssh)
no("by O_PATH of itself", os.open, "/proc/self/fd/%d" % os.open(".ssh/id", O_PATH), R)
no("listing by O_PATH", os.open, ".", R, dir_fd=ssh)
no("moving it away", os.rename, ".ssh", "s")
no("moving its file away", os.rename, ".ssh/id", "id")
no("linking it", os.link, ".ssh/id", "id")
no("executing and reading", os.open, "/proc/self/fd/%d" % os.open(".ssh", O_PATH) + "/id", R)

# PID 1 opens files for programs; a file that only PID 1 may see stays closed.
for path in ("/proc/1/environ", "/proc/1/maps", "/proc/1/mem", "/proc/1/fd/0", "/proc/1/cwd/data/.env", "/proc/1/root/data/.env"):
    no(path, os.open, path, R)
    no(path, os.open, path, W, errnos=(errno.EACCES, errno.EROFS))

# Memory that is not a path, and a path across the end of a page.
import mmap
no("bad pointer", call, 2, 8, W, 0, errnos=(errno.EFAULT,))
no("null", call, 87, 0, errnos=(errno.EFAULT,))
no("empty", os.unlink, "", errnos=(errno.ENOENT,))
no("long", os.open, "x" * 4096, W | C, errnos=(errno.ENAMETOOLONG,))
page = mmap.mmap(-1, 8192)
page.write(b"\0" * 4093 + b".en" + b"v\0")
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
no("across a page", call, 2, at + 4093, W, 0)

# A thread swaps a link between an allowed and a denied file, while others write through it.
end = time.time() + 1.5
put("good", "g")
os.symlink("good", "swap")


def swap():
    n = 0
    while time.time() < end:
        n += 1
        for target in ("good", ".env"):
            os.symlink(target, "swap%d" % n)
            os.rename("swap%d" % n, "swap")


# Another process has the path in its memory too.
shared = mmap.mmap(-1, 4096)
shared[0:5] = b"good\0"
path = ctypes.addressof(ctypes.c_char.from_buffer(shared))
if os.fork() == 0:
    while time.time() < end:
        for _ in range(1000):
            shared[0:5] = b"good\0"
            shared[0:5] = b".env\0"
    os._exit(0)

opened = [0, 0]


def write():
    while time.time() < end:
        try:
            fd = os.open("swap", W | os.O_TRUNC)
            os.write(fd, b"raced")
            os.close(fd)
            opened[0] += 1
        except OSError as error:
            opened[1] += 1
            assert error.errno in (errno.EACCES, errno.ENOENT), error
        fd = libc.syscall(2, ctypes.c_long(path), W | os.O_TRUNC, 0)
        if fd >= 0:
            os.write(fd, b"raced")
            os.close(fd)


threads = [threading.Thread(target=t) for t in (swap, write, write)]
[t.start() for t in threads]
[t.join() for t in threads]
os.wait()
if not (opened[0] and opened[1]):
    print("bad: no race at all", opened)

# A process whose memory cannot be read opens nothing.
if os.fork() == 0:
    libc.prctl(4, 0, 0, 0, 0)
    no("undumpable", os.open, "plain", W)
    os._exit(0)
os.wait()

for path in (".env", "a/b/x.key"):
    if content(path) != "secret":
        print("bad:", path, "is", content(path))
left = [n for n in os.listdir(".") + os.listdir("a/b") + os.listdir("/tmp") if n.endswith(".key")]
if left != ["x.key"]:
    print("bad:", left)
if sorted(os.listdir("/dev/shm")):
    print("bad: shm")
print("done")
