"""sandbox-runtime's MCP server, standing, and a client of it: a line of JSON in is a run, a line out how long it took.

The server is the package's own command with its defaults. The client is an open connection of the standard library,
which is quicker than any MCP client: the peer is not charged for ours. It must never use the package's
library directly, for what is compared is server with server. Usage: sandbox_runtime_server.py SERVER FOLDER
"""

import http.client
import json
import os
import shlex
import socket
import subprocess
import sys
import time

START = 30  # seconds from its start to its first answer
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class Client:
    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = dict(HEADERS)

    def connect(self) -> None:
        """Anew, for the server closes a connection that has rested for five seconds."""
        self.connection.close()
        self.connection.connect()

    def post(self, message: dict) -> dict | None:
        self.connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0"} | message), self.headers)
        answer = self.connection.getresponse()
        body = answer.read().decode()
        if answer.status >= 300:
            raise RuntimeError(f"{answer.status} {body}")
        if session := answer.getheader("mcp-session-id"):
            self.headers["mcp-session-id"] = session
        events = [line[len("data:") :] for line in body.splitlines() if line.startswith("data:")]
        text = events[-1] if events else body
        return json.loads(text) if text.strip() else None

    def initialize(self) -> None:
        asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
        self.post({"id": 0, "method": "initialize", "params": asked})
        self.post({"method": "notifications/initialized"})

    def run(self, command: str) -> dict:
        call = {"name": "execute_code", "arguments": {"command": command}}
        answer = self.post({"id": 1, "method": "tools/call", "params": call})
        result = answer["result"]
        return result.get("structuredContent", {}).get("result") or json.loads(result["content"][0]["text"])


def reached(port: int, server: subprocess.Popen) -> Client:
    until = time.monotonic() + START
    while True:
        try:
            client = Client(port)
            client.initialize()
            return client
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.05)


def main(command: str, folder: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The log of every request in a file, its default, would cost it time.
    environment = os.environ | {"SANDBOX_HOST": "127.0.0.1", "SANDBOX_PORT": str(port), "SANDBOX_LOG_FILE": ""}
    environment.pop("SANDBOX_AUTH_TOKEN", None)
    log = open(os.path.join(folder, "sandbox-runtime.log"), "wb")
    server = subprocess.Popen([command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        client = reached(port, server)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            code = asked["code"] if asked["way"] == "command" else f"python3 -c {shlex.quote(asked['code'])}"
            client.connect()
            begun = time.perf_counter_ns()
            result = client.run(code)
            micros = (time.perf_counter_ns() - begun) // 1000
            answer = {"micros": micros, "exit_code": result.get("exit_code")}
            for stream in ("stdout", "stderr"):
                events = (event for event in result.get("output", []) if event["type"] == stream)
                answer[stream] = "".join(event["data"] for event in events)
            answer["stderr"] += result.get("error") or ""
            print(json.dumps(answer), flush=True)
    finally:
        server.terminate()
        server.wait()


main(*sys.argv[1:])
