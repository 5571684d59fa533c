# Compressed files left open are readable after the end of a child that did so.
import subprocess, sys, os, gzip, bz2, zipfile
pid = os.fork()
if pid == 0:
    g = gzip.open('/data/x.gz', 'wt'); g.write('gz' * 100)
    b = bz2.open('/data/x.bz2', 'wt'); b.write('bz2')
    z = zipfile.ZipFile('/data/x.zip', 'w'); z.writestr('a', 'zipped')
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(gzip.open('/data/x.gz', 'rt').read() == 'gz' * 100, bz2.open('/data/x.bz2', 'rt').read(), zipfile.ZipFile('/data/x.zip').read('a'))
for n in ('x.gz', 'x.bz2', 'x.zip'): os.unlink('/data/' + n)
