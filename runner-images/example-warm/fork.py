#!/usr/bin/python3
# The shortest warm part of the kind "one process that forks". The protocol is in ../README.md.
# It loads the slow libraries, then forks each child before the run that the child will execute arrives.
import os
import socket
import sys
import traceback

WARM = True  # stands for the slow libraries
line = socket.socket(fileno=3)


def say(*words):
    line.sendall((" ".join(map(str, words)) + "\n").encode())


def wait_and_become():
    os.setsid()
    say("ready", os.getpid())
    byte, received, _, _ = socket.recv_fds(line, 1, 4)
    if not byte:
        os._exit(0)  # paddock has closed the connection
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


def serve():
    while True:
        child = os.fork()
        if child == 0:
            wait_and_become()
        _, status, used = os.wait4(child, 0)
        cpu = int((used.ru_utime + used.ru_stime) * 1_000_000)
        say("ended", child, os.waitstatus_to_exitcode(status), cpu, used.ru_maxrss)


if __name__ == "__main__":
    serve()
