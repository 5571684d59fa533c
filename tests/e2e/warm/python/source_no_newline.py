# The last line of the source has no end.
print('last', end='')