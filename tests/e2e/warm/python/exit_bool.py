# SystemExit with True, in a subclass, within a finally that prints.
class Mine(SystemExit): pass
try:
    raise Mine(True)
finally:
    print('finally')
