"""Swift with its S3 API, all four servers of it, as children of this process: `s3.py FOLDER PORT ADDRESS`.

One copy of everything, on one "device", which is a folder. The proxy listens at ADDRESS and PORT, the three servers
behind it at ports of 127.0.0.1 that are free. They die with this process. It must never touch anything outside FOLDER.
"""

import ctypes
import datetime
import hashlib
import hmac
import http.client
import os
import signal
import socket
import subprocess
import sys
import time

KINDS = ["account", "container", "object"]
PROXY = """
[DEFAULT]
bind_ip = {address}
bind_port = {port}
swift_dir = {folder}
workers = 0
log_level = WARNING
user = {user}
[pipeline:main]
pipeline = catch_errors s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
s3_acl = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_paddock = testing .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
BEHIND = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
workers = 0
log_level = WARNING
user = {user}
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""


def child(folder, kind):
    """One of the servers, in a process of its own."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it dies with the process that started it
    from swift.common import utils
    from swift.common.utils import config

    # Swift has this path fixed.
    for module in (utils, config):
        module.SWIFT_CONF_FILE = f"{folder}/swift.conf"
    from swift.common.wsgi import run_wsgi

    sys.exit(run_wsgi(f"{folder}/{kind}.conf", f"{kind}-server", verbose=True))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_bucket(address, port):
    """Asks for the bucket by a signed request, until the proxy answers."""
    host, day = f"{address}:{port}", datetime.datetime.now(datetime.timezone.utc)
    stamp, date = day.strftime("%Y%m%dT%H%M%SZ"), day.strftime("%Y%m%d")
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": stamp}
    names = ";".join(headers)
    canonical = "PUT\n/paddock\n\n" + "".join(f"{k}:{v}\n" for k, v in headers.items()) + f"\n{names}\n{empty}"
    scope = f"{date}/us-east-1/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n" + hashlib.sha256(canonical.encode()).hexdigest()
    key = b"AWS4testing"
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential=test:paddock/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    for _ in range(300):
        try:
            connection = http.client.HTTPConnection(host, timeout=10)
            connection.request("PUT", "/paddock", headers=headers)
            answer = connection.getresponse()
            if answer.status in (200, 409):
                return
            said = answer.read()
        except OSError as error:
            said = error
        time.sleep(0.1)
    sys.exit(f"cannot make the bucket: {said}")


def main(folder, port, address):
    import getpass

    user = getpass.getuser()
    os.makedirs(f"{folder}/devices/d1", exist_ok=True)
    with open(f"{folder}/swift.conf", "w") as out:
        out.write("[swift-hash]\nswift_hash_path_suffix = paddock\n[storage-policy:0]\nname = only\ndefault = yes\n")
    builder = os.path.join(os.path.dirname(sys.executable), "swift-ring-builder")
    ports = {kind: free_port() for kind in KINDS}
    for kind in KINDS:
        for old in (f"{folder}/{kind}.builder", f"{folder}/{kind}.ring.gz"):
            if os.path.exists(old):
                os.remove(old)
        at = f"{folder}/{kind}.builder"
        run = [sys.executable, builder, at]
        device = f"r1z1-127.0.0.1:{ports[kind]}/d1"
        for words in (["create", "4", "1", "0"], ["add", device, "1"], ["rebalance"]):
            done = subprocess.run(run + words, capture_output=True, text=True)
            if done.returncode > 1:
                sys.exit(done.stdout + done.stderr)
        with open(f"{folder}/{kind}.conf", "w") as out:
            out.write(BEHIND.format(kind=kind, port=ports[kind], folder=folder, user=user))
    with open(f"{folder}/proxy.conf", "w") as out:
        out.write(PROXY.format(address=address, port=port, folder=folder, user=user))
    this = [sys.executable, __file__, folder, str(port), address]
    children = [subprocess.Popen([*this, kind]) for kind in KINDS + ["proxy"]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        make_bucket(address, port)
        print("ready", flush=True)
        os.wait()
    finally:
        for each in children:
            each.kill()


if __name__ == "__main__":
    where = os.path.abspath(sys.argv[1])
    if len(sys.argv) > 4:
        child(where, sys.argv[4])
    else:
        main(where, *sys.argv[2:])
