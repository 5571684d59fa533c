# The program of S1's document, rewritten: the same imports, address, calls and keys. It runs unchanged but
# for the port.
import asyncio
import json

from anthropic import Anthropic
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def main():
    async with streamablehttp_client("http://localhost:8080/mcp") as (incoming, outgoing, _):
        async with ClientSession(incoming, outgoing) as session:
            await session.initialize()
            listed = await session.list_tools()
            print("tools:", *[tool.name for tool in listed.tools])
            command = "python -c 'print(sum(range(100)))'"
            ran = await session.call_tool("execute_code", arguments={"command": command, "timeout_seconds": 30})
            document = json.loads(ran.content[0].text)
            for event in document.get("output", []):
                if event["type"] == "stdout":
                    print("stdout:", event["data"])


assert Anthropic  # its agent would be given the tools
asyncio.run(main())
