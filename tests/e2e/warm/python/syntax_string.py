# A string without an end, behind lines that would print.
print('never printed')
s = 'abc
