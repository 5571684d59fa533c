"""An index of Python packages (PEP 503) and an npm registry, on loopback: index.py [weighty N] prints its port. With
`weighty N` it also has N versions of a package of 400 files and 40 MB.

The packages are made here, most of them to be hostile. GET /requests answers with the path of every request so far, and GET
/let/go lets go of those that wait. The server ends with its standard input.
"""

import base64
import collections
import hashlib
import http.server
import io
import json
import os
import sys
import tarfile
import threading
import zipfile

LINK, SETUID, FIFO = 0o120777, 0o104755, 0o010644
requests, files, wheels, npm = [], {}, collections.defaultdict(list), {}
gate, healed = threading.Event(), threading.Event()


def wheel(name, version, content, requires=(), claimed=None, modes=None, scripts=()):
    """A wheel of these files. `claimed`: the content whose hash the index gives in place of its own."""
    info = f"{name}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {one}\n" for one in requires)
    content = {
        **content,
        f"{info}/METADATA": meta,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if scripts:
        content[f"{info}/entry_points.txt"] = "[console_scripts]\n" + "\n".join(scripts) + "\n"
    record = ""
    for path, text in content.items():
        data = text if isinstance(text, bytes) else text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    content[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in content.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (modes or {}).get(path, 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    file = f"{name}-{version}-py3-none-any.whl"
    files[file] = out.getvalue()
    wheels[name.replace("_", "-")].append((file, hashlib.sha256(claimed or files[file]).hexdigest()))


def source(name, version, content=None):
    """A source distribution whose build would run code."""
    out = io.BytesIO()
    content = content or {"setup.py": "open('/data/built', 'w')\nimport setuptools; setuptools.setup()", "PKG-INFO": ""}
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in content.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    file = f"{name}-{version}.tar.gz"
    files[file] = out.getvalue()
    wheels[name].append((file, hashlib.sha256(files[file]).hexdigest()))


def module(name, version, content, manifest=None, wrong=False, odd=()):
    """A package of npm; `odd` are entries that no package has."""
    out = io.BytesIO()
    manifest = {"name": name, "version": version, **(manifest or {})}
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in {"package.json": json.dumps(manifest), **content}.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path, kind, target in odd:
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    file = f"{name.replace('/', '-')}-{version}.tgz"
    files[file] = out.getvalue()
    digest = base64.b64encode(hashlib.sha512(b"other" if wrong else files[file]).digest()).decode()
    whole = npm.setdefault(name, {"name": name, "dist-tags": {"latest": version}, "versions": {}})
    whole["versions"][version] = {**manifest, "dist": {"tarball": f"{{base}}/files/{file}", "integrity": f"sha512-{digest}"}}


for one in ("1.0", "2.0"):
    wheel("good", one, {"good/__init__.py": f"VERSION = '{one}'\n", "good/deep/" + "long/" * 30 + "name.txt": "far down"},
        scripts=["good-tool = good.tool:main"])
    wheel("good_tool", one, {"good_tool.py": f"def main(): print('tool {one}')\n"}, scripts=["good-tool = good_tool:main"])
wheel("needs", "1.0", {"needs.py": "import good; VERSION = good.VERSION\n"}, requires=["good==1.0"])
wheel("clash", "1.0", {"clash.py": ""}, requires=["good==2.0"])
wheel("tabulate", "99.0", {"tabulate.py": "VERSION = '99.0'\n"})
wheel("library", "1.0", {"json.py": "WRONG = True\n", "library.py": "OK = True\n", "sitecustomize.py": "WRONG = True\n"})
wheel("pth", "1.0", {"pth.py": "OK = True\n", "pth.pth": "import os; open('/data/pth', 'w').close()\n"})
wheel("climbs", "1.0", {"climbs.py": "", "../../../data/climbed.py": "x"})
wheel("odd", "1.0", {"odd.py": "OK = True\n", "link": "/etc/passwd", "setuid": "#!/bin/sh\n", "fifo": "x"},
    modes={"link": LINK, "setuid": SETUID, "fifo": FIFO})
wheel("marked", "1.0", {"marked.py": "", ".paddock-layer": "{}"})
wheel("wronghash", "1.0", {"wronghash.py": ""}, claimed=b"other")
wheel("large", "1.0", {"large.py": "", "large.bin": bytes(3 << 20)})
wheel("many", "1.0", {f"many/m{n}.py": "" for n in range(300)})
wheel("slow", "1.0", {"slow.py": "OK = True\n"})
wheel("breaks", "1.0", {"breaks.py": "OK = True\n", "breaks.bin": os.urandom(1 << 20)})
wheel("middle", "1.0", {"middle.py": "OK = True\n", "middle.bin": bytes(600 << 10)})
wheel("middle2", "1.0", {"middle2.py": "OK = True\n", "middle.bin": bytes(600 << 10)})
if sys.argv[1:2] == ["weighty"]:
    for n in range(1, int(sys.argv[2]) + 1):
        wheel("weighty", f"{n}.0", {"weighty/__init__.py": "", **{f"weighty/{i}.bin": os.urandom(100_000) for i in range(400)}})
source("sourced", "1.0")
# A source that brings the program that builds it, which needs nothing, and that tells the index when it runs.
source("evil", "1.0", {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": "import os, urllib.request\n"
    "def prepare_metadata_for_build_wheel(directory, settings=None):\n"
    "    urllib.request.urlopen(os.environ['SANDBOX_INDEX'] + 'evil-has-run')\n",
})
module("left", "1.2.3", {"index.js": "module.exports = 'left 1.2.3';"})
module("@scope/esm", "2.0.0", {"index.js": "export default 'esm ' + (await import('left')).default;"},
    {"type": "module", "exports": "./index.js", "dependencies": {"left": "1.2.3"}})
module("papaparse", "99.0.0", {"index.js": "module.exports = 'papaparse 99';"})
module("scripted", "1.0.0", {"index.js": "module.exports = require('fs').existsSync(__dirname + '/ran');"},
    {"scripts": {name: "touch ran" for name in ("preinstall", "install", "postinstall", "prepare")}, "bin": {"scripted": "index.js"}})
module("holds", "1.0.0", {"index.js": "module.exports = 'holds ' + require('inner');",
    "node_modules/inner/package.json": '{"name": "inner", "version": "3.0.0"}',
    "node_modules/inner/index.js": "module.exports = 'inner';"}, {"dependencies": {"inner": "3.0.0"}, "bundleDependencies": ["inner"]})
for system in ("win32", "linux"):
    module(f"for-{system}", "1.0.0", {"index.js": ""}, {"os": [system]})
module("platforms", "1.0.0", {"index.js": "module.exports = 'platforms';"},
    {"optionalDependencies": {"for-win32": "1.0.0", "for-linux": "1.0.0"}})
module("wrongsum", "1.0.0", {"index.js": ""}, wrong=True)
module("oddities", "1.0.0", {"index.js": "module.exports = 'odd';"},
    odd=[("package/link", tarfile.SYMTYPE, "/etc/passwd"), ("package/fifo", tarfile.FIFOTYPE, ""),
        ("package/../../climbed", tarfile.SYMTYPE, "/data")])


class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body, kind="application/octet-stream", length=None, code=200):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        if kind == "application/octet-stream":
            self.send_header("Cache-Control", "max-age=600, immutable")  # as PyPI does
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        parts = path.strip("/").replace("%2f", "/").replace("%2F", "/").split("/")
        if path == "/requests":
            return self.answer(json.dumps(requests).encode())
        if path == "/let/go":
            gate.set()
            return self.answer(b"")
        if path == "/heal":
            healed.set()
            return self.answer(b"")
        requests.append(path)
        if parts[0] == "simple" and parts[1:] and parts[1] in wheels:
            links = "".join(f'<a href="/files/{file}#sha256={digest}">{file}</a><br>' for file, digest in wheels[parts[1]])
            return self.answer(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
        if parts[0] == "files" and parts[1] in files:
            body = files[parts[1]]
            if parts[1].startswith("slow"):
                gate.wait(60)
            if parts[1].startswith("breaks") and not healed.is_set():
                self.close_connection = True
                return self.answer(body[: len(body) // 2], length=len(body))
            return self.answer(body)
        if parts[0] == "npm" and "/".join(parts[1:]) in npm:
            base = f"http://{self.headers['Host']}"
            return self.answer(json.dumps(npm["/".join(parts[1:])]).replace("{base}", base).encode(), "application/json")
        return self.answer(b"not here", "text/plain", code=404)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that went away."""


server = Server(("127.0.0.1", 0), Index)
lan = f"http://index.lan:{server.server_port}"
wheel("by_url", "1.0", {"by_url.py": ""}, requires=[f"evil @ {lan}/files/evil-1.0.tar.gz"])
wheel("by_git", "1.0", {"by_git.py": ""}, requires=[f"evil @ git+{lan}/evil.git"])
wheel("by_wheel", "1.0", {"by_wheel.py": ""}, requires=[f"good @ {lan}/files/good-1.0-py3-none-any.whl"])
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
