# Files that exist before, made without a policy.
import os
for path in ["a/b", ".ssh", "conf", "big"]:
    os.makedirs(path, exist_ok=True)
for path in [".env", "a/b/x.key", ".ssh/id"]:
    open(path, "w").write("secret")
for path in ["plain", "conf/plain"]:
    open(path, "w").write("plain")
os.link(".env", "hard")
os.link("plain", "second")
os.symlink("a/b", "dir")
os.symlink("a/b/x.key", "soft")
os.symlink("/tmp", "tmp")
