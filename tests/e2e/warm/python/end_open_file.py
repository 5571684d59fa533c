# A file left open is written.
f = open('/data/x', 'w'); f.write('abc')
g = open('/data/y', 'wb'); g.write(b'bytes')
h = open('/data/z', 'w+', encoding='utf-16'); h.write('wide é')
print('done')
