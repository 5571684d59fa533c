import sys
from __future__ import annotations
# A future statement that comes too late.
print(1)
