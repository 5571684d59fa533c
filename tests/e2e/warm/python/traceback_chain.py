# Chained errors, notes, groups.
def inner():
    try:
        {}['key']
    except KeyError as e:
        e.add_note('a note')
        raise ValueError('outer') from e
try:
    inner()
except ValueError:
    raise ExceptionGroup('several', [TypeError('t'), OSError(2, 'No such file', 'x')])
