# The source has a byte that is not UTF-8.
print('ÿ')
