# An indentation that fits nothing.
def f():
    x = 1
  return x
