#!/usr/bin/python3
# A warm part with snapshots that are none: "save" writes a word, "restore" reads it and behaves as the warm part.
# /behaviour says what goes wrong. The protocol is that of the example, /fork.py.
import os
import sys
import time

how, behaviour = sys.argv[1], open("/behaviour").read().split()
if how == "save":
    if "save-fails" in behaviour:
        print("nothing\nno room for \x1b[2J it", file=sys.stderr)
        sys.exit(3)
    if "save-unsupported" in behaviour:
        print("the kernel lacks something", file=sys.stderr)
        sys.exit(69)
    if "save-links" in behaviour:
        os.symlink("/etc/passwd", "/warm/link")
    if "save-waits" in behaviour:
        time.sleep(50)
    os.mkdir("/warm/deep")
    with open("/warm/deep/word", "w") as file:
        file.write("restored")
    with open("/warm/zeros", "wb") as file:
        file.truncate((400 if "save-large" in behaviour else 3) << 20)
    sys.exit(0)

sys.path.insert(0, "/")
import fork  # noqa: E402


def fail(why, word="failed"):
    fork.say(word, why)
    sys.exit(75)


def ends_while_it_waits(child):
    """After six seconds without a run it is true: long after the proof program has begun."""
    for _ in range(60):
        time.sleep(0.1)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            fork.say("ended", child, os.waitstatus_to_exitcode(status), 1, 1)
            return False
    os.kill(child, 9)
    return True


fork.WARM = "imported"
if how == "import" and "import-slow" in behaviour:
    time.sleep(1)
if how == "restore":
    if "restore-fails" in behaviour:
        fail("the kernel is \x1b[2J another")
    if "restore-unsupported" in behaviour:
        fail("no restoring here", "unsupported")
    if "restore-dies" in behaviour:
        sys.exit(1)
    if os.path.exists("/tmp/second"):
        fail("not twice")
    try:
        open("/warm/more", "w")
        fail("the snapshot can be written")
    except OSError:
        pass
    fork.WARM = " ".join([open("/warm/deep/word").read(), *sys.argv[2:]])
    if "light" in sys.argv and "light-fails" in behaviour:
        fail("no light")
    light_dies = "light-dies" in behaviour and "light" in sys.argv
    while "idle-says" in behaviour or "idle-dies" in behaviour or light_dies:
        child = os.fork()
        if child == 0:
            fork.wait_and_become()
        if ends_while_it_waits(child):
            if "idle-says" in behaviour or light_dies:
                open("/tmp/second", "w").close()
            sys.exit(1)
fork.serve()
