# Files hung on what was imported from elsewhere, and on builtins.
import json, builtins, sys, threading, collections
json.my_file = open('/data/json', 'w'); json.my_file.write('on a module')
builtins.my_file = open('/data/builtins', 'w'); builtins.my_file.write('on builtins')
sys.my_file = open('/data/sys', 'w'); sys.my_file.write('on sys')
local = threading.local(); local.f = open('/data/local', 'w'); local.f.write('thread local')
json.JSONDecoder.my_file = open('/data/class', 'w'); json.JSONDecoder.my_file.write('on a class')
import gzip, bz2, lzma, zipfile, tarfile, csv
g = gzip.GzipFile('/data/x.gz', 'wb', mtime=0); g.write(b'gz')
b = bz2.open('/data/x.bz2', 'wt'); b.write('bz2')
x = lzma.open('/data/x.xz', 'wt'); x.write('xz')
w = csv.writer(open('/data/x.csv', 'w')); w.writerow([1, 2])
z = zipfile.ZipFile('/data/x.zip', 'w'); z.writestr(zipfile.ZipInfo('a'), 'zipped')
