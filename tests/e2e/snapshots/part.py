#!/usr/bin/python3
# A warm part with snapshots that are none: "save" writes a word, "restore" reads it and behaves as the warm part.
# /behaviour says what goes wrong.
import os
import socket
import sys
import time
import traceback

how, behaviour = sys.argv[1], open("/behaviour").read().split()
if how == "save":
    if "save-fails" in behaviour:
        print("nothing\nno room for \x1b[2J it", file=sys.stderr)
        sys.exit(3)
    if "save-links" in behaviour:
        os.symlink("/etc/passwd", "/warm/link")
    if "save-waits" in behaviour:
        time.sleep(50)
    os.mkdir("/warm/deep")
    with open("/warm/deep/word", "w") as file:
        file.write("restored")
    with open("/warm/zeros", "wb") as file:
        file.truncate(3 << 20)
    sys.exit(0)

line = socket.socket(fileno=3)


def say(*words):
    line.sendall((" ".join(map(str, words)) + "\n").encode())


def fail(why):
    say("failed", why)
    sys.exit(75)


WARM = "imported"
if how == "restore":
    if "restore-fails" in behaviour:
        fail("the kernel is \x1b[2J another")
    if "restore-dies" in behaviour:
        sys.exit(1)
    if os.path.exists("/tmp/second"):
        fail("not twice")
    try:
        open("/warm/more", "w")
        fail("the snapshot can be written")
    except OSError:
        pass
    WARM = " ".join([open("/warm/deep/word").read(), *sys.argv[2:]])
    if "light" in sys.argv and "light-fails" in behaviour:
        fail("no light")


def wait_and_become():
    os.setsid()
    say("ready", os.getpid())
    byte, received, _, _ = socket.recv_fds(line, 1, 4)
    if not byte:
        os._exit(0)
    say("took", os.getpid())
    line.close()
    run, *streams = received
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with open(run, "rb") as file:
        content = file.read()
    while content[0]:
        variable, content = content.split(b"\0", 1)
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    os.chdir("/data")
    code = 0
    try:
        exec(compile(content[1:], "main.py", "exec"), {"__name__": "__main__", "WARM": WARM})
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


while True:
    child = os.fork()
    if child == 0:
        wait_and_become()
    if how == "restore" and ("idle-dies" in behaviour or "light-dies" in behaviour and "light" in sys.argv):
        for _ in range(20):
            time.sleep(0.1)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
        else:
            os.kill(child, 9)
            open("/tmp/second", "w").close()
            sys.exit(1)
        say("ended", child, os.waitstatus_to_exitcode(status), 1, 1)
        continue
    _, status, used = os.wait4(child, 0)
    cpu = int((used.ru_utime + used.ru_stime) * 1_000_000)
    say("ended", child, os.waitstatus_to_exitcode(status), cpu, used.ru_maxrss)
