# -*- coding: no-such-thing -*-
print(1)
