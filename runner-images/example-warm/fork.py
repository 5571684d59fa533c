#!/usr/bin/python3
# A warm part of the kind "one process that forks", as short as it can be; the protocol is in ../README.md.
# Loads what is slow to load, and keeps one child forked ahead of the run that it will be.
import os
import socket
import sys
import traceback

WARM = True  # what it loads
line = socket.socket(fileno=3)


def say(*words):
    line.sendall((" ".join(map(str, words)) + "\n").encode())


def wait_and_become():
    os.setsid()
    say("ready", os.getpid())
    byte, received, _, _ = socket.recv_fds(line, 1, 4)
    if not byte:
        os._exit(0)  # paddock is gone
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
    _, status, used = os.wait4(child, 0)
    cpu = int((used.ru_utime + used.ru_stime) * 1_000_000)
    say("ended", child, os.waitstatus_to_exitcode(status), cpu, used.ru_maxrss)
