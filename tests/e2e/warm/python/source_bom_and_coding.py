# -*- coding: latin-1 -*-
# A byte order mark, and a line that contradicts it.
print(1)
