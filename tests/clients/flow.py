"""The flow of every Python client; flow.mjs explains it."""

import asyncio
import os
import secrets
import sys
import urllib.request
from base64 import b64encode

URL = os.environ["PADDOCK_URL"]
MCP = f"{URL}/mcp"
TOKEN = os.environ["PADDOCK_TOKEN"]


async def restart():
    print("restart", flush=True)
    # Outside of the event loop: meanwhile the client notices that its connections were lost.
    assert await asyncio.to_thread(sys.stdin.readline), "the test answers"


async def flow(call):
    """`call` takes a tool's name and its arguments, and returns the document of a successful result."""
    conversation = {"conversationId": "client"}
    files = []
    for number in range(int(os.environ["PADDOCK_RESTARTS"]) + 1):
        if number > 0:
            await restart()
        given, made = f"in-{number}.bin", f"out-{number}.bin"
        content = secrets.token_bytes(20_000)
        upload = {"filename": given, "content": b64encode(content).decode()}
        uploaded = await call("upload_file", conversation | upload)
        assert uploaded["success"] is True, uploaded

        code = f"""content = open('/data/{given}', 'rb').read()
open('/data/{made}', 'wb').write(content[::-1])
print(len(content))"""
        ran = await call("run_code", conversation | {"language": "python", "code": code})
        assert ran["stdout"] == "20000\n", ran

        files += [given, made]
        listed = await call("list_artifacts", conversation)
        assert [file["filename"] for file in listed["artifacts"]] == sorted(files), listed

        [link] = [file["download_url"] for file in listed["artifacts"] if file["filename"] == made]
        with urllib.request.urlopen(link) as download:
            assert download.read() == content[::-1]


def document(is_error, structured, content):
    """The document of a result."""
    assert not is_error, content
    assert content[0].text, "a model reads the text"
    return structured
