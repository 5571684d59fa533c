# Temporary files and folders, those that are left too.
import tempfile, os
with tempfile.NamedTemporaryFile('w+', dir='/data') as f: f.write('x'); f.flush(); print(os.path.exists(f.name))
print(os.path.exists(f.name), tempfile.gettempdir(), tempfile.tempdir)
d = tempfile.TemporaryDirectory(dir='/data'); open(d.name + '/x', 'w').write('x')
t = tempfile.NamedTemporaryFile(dir='/data')
fd, name = tempfile.mkstemp(dir='/data'); os.unlink(name)
