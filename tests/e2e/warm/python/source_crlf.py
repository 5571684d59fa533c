# The lines of the source end as on Windows.
if True:
    print('a')
s = '''x
y'''
print(repr(s))
1/0
