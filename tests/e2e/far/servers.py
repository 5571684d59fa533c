"""The servers of the far side, in its network namespace: what programs in containers try to reach.

    servers.py FOLDER ADDRESS [git] [postgres]

It prints "ready" when everything listens, and ends, with all that it started, at the end of its standard input.
FOLDER receives ca.pem, the certificate of its authority, and for git a key and known_hosts.
"""

import glob
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading

from web import Web, WebServer

NAMES = ["far.example", "blocked.example"]
CONFIG = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""

folder, address = sys.argv[1], sys.argv[2]
wanted = sys.argv[3:]
children = []


def path(*names):
    return os.path.join(folder, *names)


def run(*command, **options):
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout.decode()}")
    return done.stdout.decode()


def start(ready, *command, **options):
    """Starts a program and waits for a line of its log with this text."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        **options)
    children.append(child)
    log = b""
    for line in child.stdout:
        log += line
        if ready in line:
            # Nobody needs the rest, but the program must be able to write it.
            threading.Thread(target=lambda: [None for _ in child.stdout], daemon=True).start()
            return
    sys.exit(f"{command}: {log.decode()}")


def certificates():
    alternative = "subjectAltName = " + ", ".join(f"DNS:{name}" for name in NAMES)
    with open(path("openssl.cnf"), "w") as config:
        config.write(CONFIG + alternative + "\n")
    make = ["openssl", "req", "-x509", "-config", path("openssl.cnf"), "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    authority = path("authority.key")
    run(*make, "-extensions", "authority", "-subj", "/CN=far", "-keyout", authority, "-out", path("ca.pem"))
    run(*make, "-extensions", "server", "-subj", f"/CN={NAMES[0]}", "-keyout", path("server.key"),
        "-out", path("server.pem"), "-CA", path("ca.pem"), "-CAkey", authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path("server.pem"), path("server.key"))
    return context


def serve(port, talk):
    """Serves each connection to this port in a thread of its own."""
    listener = socket.create_server((address, port), backlog=1024)

    def accept():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=talk, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def echo(stream):
    try:
        while piece := stream.recv(65536):
            stream.sendall(piece)
        stream.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    stream.close()


def reset(stream):
    stream.recv(1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


silent = []


def mute(stream):
    """Never reads, and never ends."""
    silent.append(stream)


def flood(stream):
    """Sends without end."""
    try:
        while True:
            stream.sendall(bytes(65536))
    except OSError:
        stream.close()


def half(stream):
    """Ends its own direction first, and sends nothing after that: the program's bytes arrive all the same."""
    stream.sendall(b"first")
    stream.shutdown(socket.SHUT_WR)
    received = b""
    while piece := stream.recv(65536):
        received += piece
    halves.append(received.decode())
    stream.close()


halves = []


def ssh():
    """git over ssh: root may do nothing but that."""
    repository()
    os.makedirs("/run/sshd", exist_ok=True)
    # This program has mounts of its own (ip netns exec). A locked account could not log in.
    with open("/etc/shadow") as shadow, open(path("shadow"), "w") as own:
        own.write("root:*:20000:0:99999:7:::\n")
        own.writelines(line for line in shadow if not line.startswith("root:"))
    run("mount", "--bind", path("shadow"), "/etc/shadow")
    for name in ("host", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "far", "-f", path(name))
    with open(path("host.pub")) as key, open(path("known_hosts"), "w") as known:
        key = key.read()
        known.writelines(f"{name} {key}" for name in NAMES)
    with open(path("serve-git"), "w") as script:
        script.write(f"#!/bin/sh\ncd {folder} && HOME={folder} exec git-shell -c \"$SSH_ORIGINAL_COMMAND\"\n")
    os.chmod(path("serve-git"), 0o755)
    options = [f"ListenAddress={address}", f"HostKey={path('host')}", f"AuthorizedKeysFile={path('key.pub')}",
               f"ForceCommand={path('serve-git')}", "UsePAM=no", "StrictModes=no", "PidFile=none",
               "PermitRootLogin=prohibit-password", "PasswordAuthentication=no", "LogLevel=INFO"]
    start(b"Server listening", "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null",
          *(word for option in options for word in ("-o", option)))


def repository():
    """A repository with one commit; pushing is allowed."""
    own = {**os.environ, "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"}
    with open(path(".gitconfig"), "w") as config:
        config.write("[user]\nname = far\nemail = far@far.example\n[init]\ndefaultBranch = main\n"
                     "[safe]\ndirectory = *\n")
    run("git", "init", "-q", path("first"), env=own)
    with open(path("first", "README"), "w") as file:
        file.write("hello from git\n")
    run("git", "add", "README", cwd=path("first"), env=own)
    run("git", "commit", "-qm", "first", cwd=path("first"), env=own)
    run("git", "clone", "-q", "--bare", path("first"), path("repo.git"), env=own)
    run("git", "config", "http.receivepack", "true", cwd=path("repo.git"), env=own)


def postgres():
    """PostgreSQL: user and database `postgres`, no password."""
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if not programs:
        sys.exit("PostgreSQL is missing: deploy/setup postgresql")
    programs = os.path.dirname(programs[-1])
    data = path("data")
    os.mkdir(data)
    shutil.chown(data, "postgres", "postgres")
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    run(*user, f"{programs}/initdb", "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", data, cwd="/")
    with open(f"{data}/pg_hba.conf", "w") as rules:
        rules.write("host all all 0.0.0.0/0 trust\n")
    settings = [f"listen_addresses={address}", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB",
                "max_connections=10", "autovacuum=off"]
    start(b"ready to accept connections", *user, f"{programs}/postgres", "-D", data,
          *(word for setting in settings for word in ("-c", setting)), cwd="/")


def end():
    for child in children:
        child.send_signal(signal.SIGQUIT)  # PostgreSQL ends at once, and removes its shared memory
        child.wait()
    os._exit(0)


def main():
    try:
        Web.folder, Web.halves = folder, halves
        context = certificates()
        for port, tls in ((80, None), (443, context)):
            server = WebServer((address, port), Web, tls)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        for port, talk in ((7, echo), (8002, reset), (8003, mute), (8004, flood), (8005, half)):
            serve(port, talk)
        if "git" in wanted:
            ssh()
        if "postgres" in wanted:
            postgres()
        print("ready", flush=True)
        sys.stdin.read()
    finally:
        end()


main()
