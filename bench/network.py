"""What the rows of `network.rs` do with a network, by the plain means of the language: connect, one byte, many bytes.

As the code of a run, with a call of one of the functions behind it, or on its own: then a line of JSON in is a call,
[function, arguments], and a line out is what it returns. All times are microseconds of this program's own clock. It must
never count the time of looking a name up, nor a transfer of which a byte is missing.
"""

import json
import os
import socket
import sys
import time
import urllib.parse

REST = 0.003  # seconds between two samples, so that the end of one is not in the time of the next
PIECE = bytes(256 * 1024)


def since(begun):
    return (time.perf_counter_ns() - begun) / 1000


def prepared(host, port):
    """What `connected` needs, looked up: an address, and what is asked of a proxy if there is one."""
    if len(sys.argv) < 3:
        return socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4], None
    # The proxy of sandbox-runtime wants the credential of its environment.
    from base64 import b64encode

    proxy = urllib.parse.urlsplit(os.environ["https_proxy"])
    user = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    asked = f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\nProxy-Authorization: Basic {user}\r\n\r\n"
    return (socket.gethostbyname(proxy.hostname), proxy.port), asked.encode()


def connected(prepared):
    """A connection, and the time that it took."""
    address, asked = prepared
    made = socket.socket()
    begun = time.perf_counter_ns()
    made.connect(address)
    if asked:
        made.sendall(asked)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            piece = made.recv(4096)
            if not piece:
                raise RuntimeError(f"the proxy answers {answer!r}")
            answer += piece
        if b" 200 " not in answer.split(b"\r\n")[0]:
            raise RuntimeError(f"the proxy answers {answer!r}")
    taken = since(begun)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made, taken


def connects(host, port, count):
    to, times = prepared(host, port), []
    for _ in range(count + 1):
        made, taken = connected(to)
        made.close()
        times.append(taken)
        time.sleep(REST)
    return times[1:]


def echoes(host, port, count):
    times = []
    with connected(prepared(host, port))[0] as made:
        made.sendall(b"e")
        for _ in range(count + 1):
            begun = time.perf_counter_ns()
            made.sendall(b"x")
            made.recv(1)
            times.append(since(begun))
            time.sleep(REST)
    return times[1:]


def down(host, port, count):
    buffer = bytearray(len(PIECE))
    with connected(prepared(host, port))[0] as made:
        begun, got = time.perf_counter_ns(), 0
        made.sendall(b"d")
        while got < count and (n := made.recv_into(buffer)):
            got += n
        taken = since(begun)
    if got != count:
        raise RuntimeError(f"{got} bytes came")
    return [taken]


def up(host, port, count):
    with connected(prepared(host, port))[0] as made:
        begun, left = time.perf_counter_ns(), count
        made.sendall(b"u")
        view = memoryview(PIECE)
        while left:
            made.sendall(view[: min(left, len(PIECE))])
            left -= min(left, len(PIECE))
        answer = made.recv(100)  # not behind the end of this half: sandbox-runtime's proxy carries no half
        taken = since(begun)
    if int(answer) != count:
        raise RuntimeError(f"{answer!r} bytes arrived")
    return [taken]


if sys.argv[1:2] == ["serve"]:
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(globals()[name](*arguments)), flush=True)
