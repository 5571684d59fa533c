#!/usr/bin/env python3
"""What the parts of a warm call take: a plain request, a request of MCP that does nothing, and a run.

    python3 bench/parts.py http://127.0.0.1:8080

Against a daemon that runs already; MCP_API_TOKEN is taken from the environment. Each part is measured 400 times over one
connection, in turns, with a rest before it, and its least and its median time are printed in milliseconds. The client's
own time is in all of them alike. It must never run anything but `print('hi')`.
"""

import http.client
import json
import os
import socket
import statistics
import sys
import time
import urllib.parse

ROUNDS, REST = 400, 0.015


def main(url):
    token = os.environ.get("MCP_API_TOKEN", "")
    where = urllib.parse.urlsplit(url)
    line = http.client.HTTPConnection(where.hostname, where.port)
    line.connect()
    line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if token:
        headers["Authorization"] = f"Bearer {token}"

    def ask(method, path, body=None):
        line.request(method, path, body and json.dumps(body), headers)
        answer = line.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"{method} {path} was answered with {answer.status}: {text[:300]!r}")
        return text

    def run():
        arguments = {"language": "python", "code": "print('hi')", "conversationId": "bench-parts"}
        call = {"name": "run_code", "arguments": arguments}
        text = ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        if b"hi" not in text:
            sys.exit(f"the run failed: {text[:300]!r}")

    parts = {
        "GET /health": lambda: ask("GET", "/health"),
        "ping": lambda: ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
        "run_code, print('hi')": run,
    }
    times = {name: [] for name in parts}
    run()
    for _ in range(ROUNDS):
        for name, part in parts.items():
            time.sleep(REST)
            begun = time.perf_counter()
            part()
            times[name].append((time.perf_counter() - begun) * 1000)
    for name, taken in times.items():
        print(f"{name}: least {min(taken):.2f}, median {statistics.median(taken):.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
