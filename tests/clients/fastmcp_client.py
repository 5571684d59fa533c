"""fastmcp's client, the other one that programs in Python use; and the README's program, which uses it."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from fastmcp import Client

from flow import MCP, TOKEN, URL, document, flow


async def main():
    async with Client(MCP, auth=TOKEN) as client:

        async def call(name, arguments):
            result = await client.call_tool(name, arguments, raise_on_error=False)
            return document(result.is_error, result.structured_content, result.content)

        await flow(call)


def readme():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-c", program.replace("http://127.0.0.1:8080", URL)]
    ran = subprocess.run(command, env=os.environ | {"MCP_API_TOKEN": TOKEN}, stdout=subprocess.PIPE, check=True)
    assert ran.stdout.split() == [b"42"], ran.stdout


asyncio.run(main())
readme()
print("done")
