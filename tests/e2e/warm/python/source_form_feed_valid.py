# A form feed at the start of lines, as in the standard library of old.

import sys

if sys:
    print("indented")

def f():
    return 1

print(f())
