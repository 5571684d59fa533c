#!/usr/bin/env python3
"""What answers cost a model, in tokens of four bytes: python3 bench/answers.py http://127.0.0.1:8080

Against a daemon that runs already; MCP_API_TOKEN is taken from the environment. Three readers of each answer: a model's
host (what it hands on is `content`; a picture's bytes are not counted), n8n's tool for agents (it hands
`structuredContent` on), and a bare call (its whole text).
"""

import json
import os
import sys
import urllib.request

URL = sys.argv[1].rstrip("/") + "/mcp"
TOKEN = os.environ.get("MCP_API_TOKEN", "")
LONG = "yes 'a line of some thirty characters' | head -c 100000"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.savefig('plot.png')"
RUNS = {
    "print('hi')": ("run_code", {"language": "python", "code": "print('hi')"}),
    "a traceback": ("run_code", {"language": "python", "code": "def f(n):\n    return 1 / n\nprint('before')\nf(0)"}),
    "100 KB of output": ("run_code", {"language": "sh", "code": LONG}),
    "seq 1 3000": ("execute_code", {"command": "seq 1 3000"}),
    "a plot": ("run_code", {"language": "python", "code": PLOT}),
    "twenty files": ("run_code", {"language": "sh", "code": "for n in $(seq 20); do echo $n > file-$n.csv; done"}),
}


def post(message, **headers):
    request = urllib.request.Request(URL, json.dumps(message).encode(), {"Content-Type": "application/json", **headers})
    if TOKEN:
        request.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode(), answer.headers


class Client:
    """A client with a name, in an MCP session; without one, bare calls."""

    def __init__(self, name=None):
        self.headers = {}
        if name:
            self.headers = {"Accept": "application/json, text/event-stream"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
            _, got = post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, **self.headers)
            self.headers |= {"Mcp-Session-Id": got["mcp-session-id"], "Mcp-Protocol-Version": "2025-11-25"}

    def call(self, tool, arguments, session):
        params = {"name": tool, "arguments": {**arguments, "session_id": session}}
        text, _ = post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, **self.headers)
        data = [line[5:] for line in text.splitlines() if line.startswith("data:") and '"result"' in line]
        return json.loads(data[-1] if data else text)["result"]


def tokens(value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return -(-len(text.encode()) // 4)


def content(result):
    """What a host makes of each block: a text, a link by its name and address; a picture is not counted."""
    texts = [b["text"] for b in result["content"] if b["type"] == "text"]
    texts += [f"{b['name']} {b['uri']}" for b in result["content"] if b["type"] == "resource_link"]
    return tokens("\n".join(texts))


def main():
    readers = {
        "a model's host": (Client("a-host"), content),
        "n8n's tool for agents": (
            Client("@n8n/n8n-nodes-langchain.mcpClientTool"),
            lambda result: tokens(result["structuredContent"]),
        ),
        "a bare call": (Client(), content),
    }
    print("| | " + " | ".join(readers) + " |\n|---|" + "---|" * len(readers))
    for at, (what, (tool, arguments)) in enumerate(RUNS.items()):
        row = []
        for number, (client, count) in enumerate(readers.values()):
            row.append(f"{count(client.call(tool, arguments, f'answers-{os.getpid()}-{at}-{number}')):,}")
        print(f"| {what} | " + " | ".join(row) + " |")


main()
