# A bracket that is never closed.
x = (1,
y = 2
