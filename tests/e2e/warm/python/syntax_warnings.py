# Warnings that the compiler gives.
x = "\d"
if x is "a": pass
print(x)
assert (x, 'always')
1()
