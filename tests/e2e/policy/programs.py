# Everyday operations of programs work with a policy as without one. Prints "bad" for each that does not.
import os, shutil, sqlite3, stat, subprocess, sys, tarfile, tempfile, multiprocessing, pathlib, time

import pandas

pandas.DataFrame({"a": [1, 2], "b": [3, 4]}).to_csv("out.csv", index=False)
assert pandas.read_csv("out.csv")["b"].sum() == 7

db = sqlite3.connect("data.db")
db.execute("create table t (x)")
for n in range(50):
    with db:
        db.execute("insert into t values (?)", (n,))
db.execute("pragma journal_mode=wal")
with db:
    db.execute("insert into t values (50)")
assert db.execute("select count(*) from t").fetchone() == (51,)
db.close()
assert not os.path.exists("data.db-journal")

# As git writes: a lock file, made exclusively, renamed into place.
for n in range(20):
    fd = os.open("index.lock", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    os.write(fd, b"%d" % n)
    os.fsync(fd)
    os.close(fd)
    os.rename("index.lock", "index")
assert open("index").read() == "19"
os.makedirs("objects/ab", exist_ok=True)
os.makedirs("objects/ab", exist_ok=True)
os.open("objects/ab/x", os.O_CREAT | os.O_WRONLY, 0o444)
assert stat.S_IMODE(os.stat("objects/ab/x").st_mode) == 0o444
os.umask(0o027)
open("masked", "w").close()
os.mkdir("maskeddir")
assert stat.S_IMODE(os.stat("masked").st_mode) == 0o640 and stat.S_IMODE(os.stat("maskeddir").st_mode) == 0o750
os.umask(0o022)

with open("log", "a") as log, open("log", "a") as other:
    log.write("one\n"); log.flush()
    other.write("two\n"); other.flush()
assert open("log").read() == "one\ntwo\n"
assert os.get_inheritable(os.open("log", os.O_WRONLY)) is False
with open("log", "r+b") as log:
    log.truncate(3)
os.truncate("log", 2)
os.utime("log", (1, 2))
os.utime("log", ns=(10**9, 3 * 10**9))
assert os.stat("log").st_size == 2 and os.stat("log").st_mtime == 3
os.chown("log", -1, os.getgid())
os.symlink("log", "loglink")
os.utime("loglink", (5, 5), follow_symlinks=False)
assert os.stat("log").st_mtime == 3 and os.lstat("loglink").st_mtime == 5
os.link("log", "log2")
open("log2", "w").write("linked")
assert open("log").read() == "linked"

shell = r"""
set -e
mkdir -p p/q/r; mkdir -p p/q/r; mkdir -p ./p/q/r/; echo a > p/q/r/f; cp -r p p2; cp -a p p3; sed -i s/a/b/ p2/q/r/f; grep -q b p2/q/r/f
tar cf t.tar p; mkdir x; tar xf t.tar -C x; cmp x/p/q/r/f p/q/r/f; mv x y; rm -rf p y; install -m 700 t.tar inst; ln -sf t.tar ls
cat > doc <<E
here
E
sort -o doc doc; tee copy < doc > /dev/null; dd if=/dev/zero of=z bs=1k count=3 2>/dev/null; touch -d @7 z; find . -name '*.csv' | xargs -n1 wc -l >/dev/null
mktemp > /dev/null; mktemp -d -p . > /dev/null; echo x >&2; exec 5>fd5; echo 5 >&5; mkfifo pipe; echo y > pipe & cat pipe > got; wait; grep -q y got
perl -e 'open(F, "+<", "doc") or die; print F "perl"; close F; rename("doc", "doc2") or die; mkdir "pd" or die; rmdir "pd" or die; chmod 0600, "doc2" or die; utime(1,1,"doc2") or die'
[ "$(cat <(echo 1))" = 1 ]; echo x > /dev/stderr; echo bash > /proc/self/comm
"""
done = subprocess.run(["bash", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if done.returncode or done.stdout != "x\nx\n":
    print("bad:", done)

with tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f, tempfile.TemporaryFile() as g:
    f.write(b"x"); g.write(b"y")
shutil.copytree("objects", "copy2")
shutil.move("copy2", "/tmp/copy2")
shutil.rmtree("/tmp/copy2")
pathlib.Path("touched").touch()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
with multiprocessing.Manager() as manager:
    assert manager.list([1])[0] == 1
master, slave = os.openpty()
open(os.ttyname(slave), "w").write("t")
subprocess.run([sys.executable, "-c", "import this"], stdout=subprocess.DEVNULL, check=True)
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plot
plot.plot([1, 2]); plot.savefig("plot.png")
print("done")
