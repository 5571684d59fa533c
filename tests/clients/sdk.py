"""The Python SDK, 2.x: `auto` asks for the newest revision, which has no sessions; `legacy` has one; `stdio` starts
its own server, beside the daemon."""

import asyncio
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from flow import MCP, TOKEN, document, flow

REVISIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


def stdio():
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "SANDBOX_ROOT")}
    return StdioServerParameters(command=os.environ["PADDOCK_PROGRAM"], args=["stdio"], env=environment)


async def main(mode):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120)
    server = stdio() if mode == "stdio" else streamable_http_client(MCP, http_client=http)
    async with http, Client(server, mode="legacy" if mode == "stdio" else mode) as client:
        assert client.protocol_version == REVISIONS.get(mode, "2025-11-25"), client.protocol_version

        async def call(name, arguments):
            result = await client.call_tool(name, arguments)
            return document(result.is_error, result.structured_content, result.content)

        await flow(call)
    print("done")


asyncio.run(main(sys.argv[1]))
