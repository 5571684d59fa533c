"""Makes the fixture of a store's format: a real daemon writes a store, and is killed before it could tidy up.

    make.py PADDOCK NUMBER      writes store-NUMBER.tar and store-NUMBER.json beside this file

The tests take the store over: see ../upgrade.rs. Make a new one when the format gets a new number
(src/daemon/src/store/format.rs), with the last daemon of the format before. Never replace an old one. It needs a Docker
engine with the runner images.
"""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = {"default": "the-token-of-the-fixture", "other": "the-other-token-of-the-fixture"}


def main(paddock, number):
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        config = os.path.join(folder, "paddock.toml")
        digest = hashlib.sha256(TOKENS["other"].encode()).hexdigest()
        with open(config, "w") as file:
            file.write('http.addr = "127.0.0.1:0"\npool.idle = 0\nmcp.toolsets = ["code", "exec"]\n')
            file.write(f'[[auth.tokens]]\nname = "other"\nsha256 = "{digest}"\n')
        env = {"SANDBOX_ROOT": store, "MCP_API_TOKEN": TOKENS["default"], "PATH": os.environ["PATH"]}
        command = [paddock, "serve", "--config", config]
        daemon = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        url = next(line for line in daemon.stderr if " serving " in line).split("url=")[1].split()[0]
        expected = fill(url)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        for folder_of_session in os.listdir(store):
            last = os.path.join(store, folder_of_session, "files", "last.txt")
            if os.path.exists(last):
                os.unlink(last)  # as if the daemon had died before it was put in place: only the journal has it
        owner = open(os.path.join(store, "owner")).read().strip()
        for path in ("daemon.sock", "http.sock", "lock", "port"):
            if os.path.exists(os.path.join(store, path)):
                os.unlink(os.path.join(store, path))
        for kind, remove in (("ps -a", "rm -f"), ("volume ls", "volume rm")):
            listed = ["docker", *kind.split(), "-q", "--filter", f"label=paddock.owner={owner}"]
            for name in subprocess.check_output(listed, text=True).split():
                subprocess.check_call(["docker", *remove.split(), name], stdout=subprocess.DEVNULL)
        with open(os.path.join(HERE, f"store-{number}.json"), "w") as file:
            json.dump(expected, file, indent=1)
            file.write("\n")
        archive = os.path.join(HERE, f"store-{number}.tar")
        subprocess.check_call(["tar", "-cf", archive, "--owner=0", "--group=0", "--format=posix", "-C", store, "."])


def fill(url):
    def call(token, tool, **arguments):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        headers = {"content-type": "application/json", "authorization": f"Bearer {TOKENS[token]}"}
        request = urllib.request.Request(url + "/mcp", json.dumps(message).encode(), headers)
        answer = json.load(urllib.request.urlopen(request))["result"]
        assert not answer.get("isError"), answer
        return answer["structuredContent"]

    links = {}

    def keep(ran):
        for file in ran["files"]:
            links[file["url"].removeprefix(url)] = None

    code = (
        "mkdir -p notes 'a b'; echo today > notes/today.txt; ln -s notes/today.txt link; "
        "printf '#!/bin/sh\\necho run\\n' > run; chmod 755 run; seq 1 900 > 'a b/\u00fc.txt'; : > empty"
    )
    keep(call("default", "run_code", language="sh", code=code, session_id="s"))
    keep(call("other", "run_code", language="sh", code="echo other > own.txt", session_id="s"))
    keep(call("default", "run_code", language="sh", code="echo closed > c.txt", session_id="closed"))
    call("default", "close_session", session_id="closed")
    long = call("default", "run_code", language="sh", code="seq 1 20000", session_id="s")
    execution = call("default", "execute_code", command="echo executed; echo failed >&2; exit 3", session_id="s")
    upload = base64.b64encode(b"uploaded\n").decode()
    call("default", "upload_file", session_id="s", filename="up.txt", content_base64=upload)
    # The last change is in the journal when the daemon is killed.
    keep(call("default", "run_code", language="sh", code="rm empty; echo last > last.txt", session_id="s"))
    for link in list(links):
        if link.split("?")[0].endswith("/empty"):
            del links[link]  # it is removed
            continue
        with urllib.request.urlopen(url + link) as answer:
            links[link] = hashlib.sha256(answer.read()).hexdigest()
    with urllib.request.urlopen(long["log_url"]) as answer:
        links[long["log_url"].removeprefix(url)] = hashlib.sha256(answer.read()).hexdigest()
    return {"links": links, "execution": execution["execution_id"]}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
