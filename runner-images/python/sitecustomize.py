# Python runs this at every start. It replaces Debian's own version, which imports apport_python_hook: that is not installed,
# and /data is on sys.path, so a file of that name there would run before the user's code.
#
# The packages of a run go behind the standard library and before the libraries of the image. They are no directory of `site`,
# so a `.pth` file in them is not executed.
import os
import sys

if os.environ.get("SANDBOX_PACKAGES"):
    for at, entry in enumerate(sys.path):
        if entry.endswith("/dist-packages") or entry == "/data":
            sys.path.insert(at, os.environ["SANDBOX_PACKAGES"])
            break
    del at, entry
del os, sys
