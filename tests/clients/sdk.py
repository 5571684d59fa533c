"""The Python SDK, 2.x: `auto` asks for the newest revision, which has no sessions; `legacy` has one."""

import asyncio
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from flow import MCP, TOKEN, document, flow

REVISIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


async def main(mode):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120)
    async with http, Client(streamable_http_client(MCP, http_client=http), mode=mode) as client:
        assert client.protocol_version == REVISIONS[mode], client.protocol_version

        async def call(name, arguments):
            result = await client.call_tool(name, arguments)
            return document(result.is_error, result.structured_content, result.content)

        await flow(call)
    print("done")


asyncio.run(main(sys.argv[1]))
