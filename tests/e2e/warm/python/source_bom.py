# The source begins with a byte order mark.
print('bom é')
