"""S1's document, tool by tool and event by event, by Python's SDK: before 2.0, as the document has it, and since.

Each part is a word of the command line. It must never pass over what is missing: an answer is compared whole where the
document says the whole of it.
"""

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from mcp import ClientSession

import flow
from flow import MCP, TOKEN, URL

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
TOOLS = {
    "execute_code", "execute_code_async", "get_execution_output", "get_execution_status", "list_executions", "send_stdin",
    "cancel_execution",
}  # fmt: skip
# The fields of an event beside `type`, `ts` and `seq`.
FIELDS = {
    "ready": set(),
    "stdout": {"data"},
    "stderr": {"data"},
    "exit": {"code", "duration_ms"},
    "timeout": {"timeout_seconds"},
    "error": {"message"},
    "cancelled": set(),
    "resource_limit": {"reason"},
    "network": {"host", "port", "allowed", "reason"},
}


@asynccontextmanager
async def transport(**more):
    try:
        from mcp.client.streamable_http import streamablehttp_client
    except ImportError:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async with httpx2.AsyncClient(headers=HEADERS, timeout=120) as http:
            async with streamable_http_client(MCP, http_client=http, **more) as streams:
                yield streams
    else:
        async with streamablehttp_client(MCP, headers=HEADERS, **more) as streams:
            yield streams


class Client:
    def __init__(self, session):
        self.session = session

    async def call(self, tool, progress=None, **arguments):
        """The document of an answer, and whether it is one of a failure. Each line is an event of its own."""
        if tool in ("execute_code", "get_execution_output"):
            arguments.setdefault("lines", True)
        result = await self.session.call_tool(tool, arguments, progress_callback=progress)
        failed = result.is_error if hasattr(result, "is_error") else result.isError
        structured = result.structured_content if hasattr(result, "structured_content") else result.structuredContent
        document, said = structured, json.loads(result.content[0].text)
        for key in ("execution_id", "status", "exit_code", "error"):
            assert said.get(key) == document.get(key), "both forms say the same"
        if "output" in document and "execution_id" in document:
            for event in document["output"]:
                check(event)
        return document, failed

    async def good(self, tool, **arguments):
        document, failed = await self.call(tool, **arguments)
        assert not failed, document
        return document

    async def fault(self, code, tool, **arguments):
        document, failed = await self.call(tool, **arguments)
        assert failed and document["error"] == code, document

    async def begin(self, command, **arguments):
        begun = await self.good("execute_code_async", command=command, **arguments)
        assert begun["status"] == "running", begun
        return begun["execution_id"]

    async def end(self, execution, status):
        """The events' types, and the answer."""
        document = await self.good("get_execution_output", execution_id=execution, wait=True)
        assert document["status"] == status, document
        return types(document), document


@asynccontextmanager
async def connected(**more):
    async with transport(**more) as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield Client(session)


def check(event):
    assert {"type", "ts", "seq"} <= event.keys(), event
    assert set(event) - {"type", "ts", "seq", "eol", "encoding"} == FIELDS[event["type"]], event
    assert abs(event["ts"] - time.time()) < 600, event


def types(document):
    return [event["type"] for event in document["output"]]


def data(document, stream="stdout"):
    return [event["data"] for event in document["output"] if event["type"] == stream]


def lines(document):
    """The lines of standard output; an event of another kind can come in the middle of one."""
    stdout = [event for event in document["output"] if event["type"] == "stdout"]
    return "".join(event["data"] + "\n" * event.get("eol", True) for event in stdout).splitlines()


async def example():
    """Runs the program unchanged, with a daemon that requires no token, like the document's."""
    program = (Path(__file__).parent / "s1_example.py").read_text()
    program = program.replace("localhost:8080", f"localhost:{urlsplit(URL).port}")
    ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)
    tools, *lines = ran.stdout.splitlines()
    assert TOOLS <= set(tools.split()), tools
    assert lines == ["stdout: 4950"], lines


async def tools():
    async with connected() as client:
        listed = await client.session.list_tools()
        assert TOOLS <= {tool.name for tool in listed.tools}, listed

        # execute_code with every argument; the answer is exactly the document's.
        command = "echo hello && sleep 1 && echo $FOO && pwd"
        snake = {"timeout_seconds": 60, "working_directory": "/tmp", "wait_for_completion": True}
        camel = {"timeoutSeconds": 60, "workingDirectory": "/tmp", "waitForCompletion": True}
        limits = {"max_memory_mb": 256, "max_cpu_seconds": 30, "max_file_size_mb": 100, "max_processes": 10}
        limits_camel = {"maxMemoryMb": 256, "maxCpuSeconds": 30, "maxFileSizeMb": 100, "maxProcesses": 10}
        denied = ["evil.example"]
        configs = [
            {
                "sandbox_config": {
                    "network": {"denied_domains": denied},
                    "filesystem": {"allow_write": ["/tmp"]},
                    "resource_limits": limits,
                }
            },
            {
                "sandboxConfig": {
                    "network": {"deniedDomains": denied},
                    "filesystem": {"allowWrite": ["/tmp"]},
                    "resourceLimits": limits_camel,
                }
            },
        ]
        for given in (snake | configs[0], camel | configs[1]):
            ran = await client.good("execute_code", command=command, interactive=False, environment={"FOO": "bar"}, **given)
            assert types(ran) == ["ready", "stdout", "stdout", "stdout", "exit"], ran
            assert (data(ran), ran["status"], ran["exit_code"]) == (["hello", "bar", "/tmp"], "completed", 0), ran
            exit = ran["output"][-1]
            assert exit["code"] == 0 and 1000 <= exit["duration_ms"] < 20_000, exit
            stamps = [event["ts"] for event in ran["output"]]
            assert stamps == sorted(stamps) and stamps[2] - stamps[1] > 0.5, "each when it was written"
            assert [event["seq"] for event in ran["output"]] == [1, 2, 3, 4, 5]
        for key in ("snadbox_config", "workingDir"):
            try:
                await client.call("execute_code", command="true", **{key: {}})
            except Exception as error:
                assert key in str(error), error
            else:
                raise AssertionError(f"{key} was passed over")

        # Not waited for, by either tool; found by the list, its status, and its output, while it runs and at
        # the end.
        begun = await client.good("execute_code", command="sleep 5; echo finished", wait_for_completion=False)
        assert begun["status"] == "running", begun
        first, second = begun["execution_id"], await client.begin("sleep 5; echo finished >&2; exit 3")
        listed = (await client.good("list_executions"))["executions"]
        assert [one["execution_id"] for one in listed[-2:]] == [first, second] and len(listed) == 4, listed
        assert [one["status"] for one in listed] == ["completed", "completed", "running", "running"], listed
        now = await client.good("get_execution_output", execution_id=first)
        assert now["status"] == "running" and "exit" not in types(now), now
        got, ran = await client.end(first, "completed")
        assert (got, ran["exit_code"]) == (["ready", "stdout", "exit"], 0), ran
        seen = await client.good("get_execution_output", executionId=first, since=2)
        assert types(seen) == ["exit"], seen
        got, ran = await client.end(second, "completed")
        assert (got, ran["exit_code"], data(ran, "stderr")) == (["ready", "stderr", "exit"], 3, ["finished"]), ran
        status = await client.good("get_execution_status", executionId=second)
        assert (status["status"], status["exit_code"]) == ("completed", 3), status
        assert status["command"].endswith("exit 3") and status["completed_at"] > status["started_at"], status

        # Input, line by line, with and without its newline, to its end.
        reader = await client.begin('while read -r line; do echo "got $line"; done; echo over', interactive=True)
        await client.good("send_stdin", execution_id=reader, input_data="user input\n")
        heard = await client.good("get_execution_output", execution_id=reader, wait=True, since=1)
        assert data(heard) == ["got user input"], heard
        await client.good("send_stdin", executionId=reader, inputData="more", eof=True)
        got, ran = await client.end(reader, "completed")
        assert data(ran) == ["got user input", "got more", "over"], ran

        # Ended: on request, and by a kill if the program ignores that.
        for force, trap, said in ((False, "echo asked; exit", ["up", "asked"]), (True, "", ["up"])):
            command = f"trap '{trap}' TERM; echo up; while :; do sleep 0.1; done"
            execution = await client.begin(command)
            await client.good("get_execution_output", execution_id=execution, wait=True, since=1)
            ended = await client.good("cancel_execution", execution_id=execution, force=force)
            assert ended["status"] == "cancelled", ended
            got, ran = await client.end(execution, "cancelled")
            assert (data(ran), got[-1]) == (said, "cancelled"), ran
        again = await client.good("cancel_execution", executionId=execution)
        assert again["status"] == "cancelled" and not again["was_running"], again

        await client.fault("execution_finished", "send_stdin", execution_id=reader, input_data="late\n")
        deaf = await client.begin("sleep 30")
        await client.fault("not_interactive", "send_stdin", execution_id=deaf, input_data="x\n")
        await client.good("cancel_execution", execution_id=deaf, force=True)
        for tool in ("get_execution_output", "get_execution_status", "cancel_execution"):
            await client.fault("execution_not_found", tool, execution_id="abc-123")
        domains = {"network": {"allowed_domains": ["example.com"]}}
        await client.fault("unsupported_policy", "execute_code", command="true", sandbox_config=domains)


async def network():
    """The document's lists of hosts, both ways to write them. A proxy of the test's answers for every name."""
    program = """import sys, urllib.request
for host in sys.argv[1:]:
    try: print(host, urllib.request.urlopen(f"http://{host}/", timeout=20).status)
    except OSError as error: print(host, error)
"""
    hosts = ["api.github.com", "www.example.com", "a.b.example.com", "evil.com", "example.com", "github.com"]
    allowed, denied = ["api.github.com", "*.example.com"], ["evil.com"]
    command = "python3 -c \"$PROGRAM\" " + " ".join(hosts)
    async with connected() as client:
        for lists_of_hosts in (
            {"allowed_domains": allowed, "denied_domains": denied},
            {"allowedDomains": allowed, "deniedDomains": denied},
        ):
            config = {"network": lists_of_hosts, "filesystem": {"allow_write": ["/tmp", "."], "deny_write": [".env", "*.key"]}}
            environment = {"PROGRAM": program, "FOO": "bar"}
            ran = await client.good(
                "execute_code", command=command, environment=environment, sandbox_config=config, timeout_seconds=60
            )
            assert [line.split(" ", 1)[-1] for line in lines(ran)][:3] == ["200"] * 3, ran
            told = {entry["host"]: (entry["allowed"], entry["reason"]) for entry in ran["network"]}
            blocked = (False, "not in allowed_domains")
            expected = [(True, None)] * 3 + [(False, "in denied_domains"), blocked, blocked]
            assert told == dict(zip(hosts, expected)), told
            status = await client.good("get_execution_status", execution_id=ran["execution_id"])
            assert status["network"] == ran["network"], status
        # The document's first example; an empty list is no network.
        config = {"network": {"allowed_domains": ["example.com"]}, "filesystem": {"allow_write": ["/tmp"]}}
        ran = await client.good("execute_code", command="echo hello && echo done", sandbox_config=config)
        assert data(ran) == ["hello", "done"] and ran["network"] == [], ran
        environment = {"PROGRAM": program}
        config = {"network": {"allowed_domains": []}}
        command = "python3 -c \"$PROGRAM\" api.github.com"
        ran = await client.good("execute_code", command=command, environment=environment, sandbox_config=config)
        assert all("rror" in line for line in lines(ran)) and "network" not in ran, ran


async def events():
    """Every type of event, where it occurs, and the answer in that case."""
    async with connected() as client:

        async def ends(command, events, status, code, **more):
            ran, failed = await client.call("execute_code", command=command, **more)
            assert (types(ran), ran["status"], ran["exit_code"]) == (events, status, code), ran
            assert failed == (status != "completed"), ran
            return ran

        ran = await ends("echo a; echo b >&2; sleep 2; printf c", ["ready", "stdout", "stderr", "stdout", "exit"], "completed", 0)
        assert ran["output"][3]["data"] == "c" and ran["output"][3]["eol"] is False, ran
        ran = await ends(r"printf '\377\n'", ["ready", "stdout", "exit"], "completed", 0)
        assert (ran["output"][1]["data"], ran["output"][1]["encoding"]) == ("/w==", "base64"), ran
        await ends("exit 7", ["ready", "exit"], "completed", 7)
        await ends("kill -SEGV $$", ["ready", "exit"], "completed", -11)
        ran = await ends("echo a; sleep 30", ["ready", "stdout", "timeout"], "timeout", -9, timeout_seconds=3)
        assert ran["output"][-1]["timeout_seconds"] == 3, ran
        ran = await ends("pwd", ["ready", "error"], "failed", None, working_directory="/data/nowhere")
        assert ran["error_message"] == ran["output"][-1]["message"], ran
        killed = await client.begin("sleep 30")
        await client.good("cancel_execution", execution_id=killed, force=True)
        got, ran = await client.end(killed, "cancelled")
        assert got == ["ready", "cancelled"], ran


async def limits():
    """Each limit is reported before the exit."""
    async with connected() as client:
        # One second of CPU time; the clocks of a container and of the kernel may differ slightly.
        spin = "while :; do :; done"
        heap = "exec python -c 'x = bytearray(400 << 20); import time; time.sleep(9)'"
        file = "exec head -c 3000000 /dev/zero > /data/large"
        forks = "for i in 1 2 3 4 5 6 7 8; do sleep 9 & done; wait"
        for command, limit, bound, word, code in (
            (spin, "max_cpu_seconds", 1, "CPU", -24),
            (file, "max_file_size_mb", 1, "File size", -25),
            (heap, "max_memory_mb", 64, "Memory", -9),
            (forks, "max_processes", 3, "Process", -9),
        ):
            config = {"resource_limits": {limit: bound}}
            ran, failed = await client.call("execute_code", command=command, sandbox_config=config)
            assert failed and ran["status"] == "failed" and ran["exit_code"] == code, (limit, ran)
            assert types(ran)[-2:] == ["resource_limit", "exit"], (limit, ran)
            reason, exit = ran["output"][-2:]
            assert reason["reason"] == f"{word} {'time ' * (word == 'CPU')}limit exceeded" and exit["code"] == code, ran


async def files():
    """The files that a command may read and write, by the document's patterns."""
    async with connected() as client:
        before = "mkdir -p ~/.ssh /data/open/deep; echo secret > ~/.ssh/id; echo mine > /data/open/.env"
        await client.good("execute_code", command=before)
        rules = {"deny_read": ["~/.ssh"], "allow_write": ["/tmp", "."], "deny_write": [".env", "*.key"]}
        camel = {"denyRead": rules["deny_read"], "allowWrite": rules["allow_write"], "denyWrite": rules["deny_write"]}
        command = """
            cat ~/.ssh/id && echo read
            echo x > /data/beyond && echo written beyond
            echo x > .env && echo written over
            echo x > deep/a.key && echo written deep
            echo x > /tmp/x && cat /tmp/x
            echo y > y && cat y .env"""
        for filesystem in (rules, camel):
            config = {"filesystem": filesystem}
            ran = await client.good("execute_code", command=command, working_directory="open", sandbox_config=config)
            assert data(ran) == ["x", "y", "mine"], ran


async def live():
    """Output comes while the command runs: as progress to whoever asked for it, and to all who watch."""
    async with connected() as client:
        heard = []

        async def progress(_progress, _total, message):
            heard.append((time.monotonic(), message))

        watched = asyncio.create_task(asyncio.to_thread(watch, "live-2"))
        await asyncio.sleep(0.5)
        ran, _ = await client.call("execute_code", progress, command="echo live-1; sleep 2; echo live-2")
        ended = time.monotonic()
        assert types(ran) == ["ready", "stdout", "stdout", "exit"], ran
        [first] = [at for at, message in heard if "live-1" in message]
        assert ended - first > 1, "before the end"
        events = await watched
        assert [event["seq"] for event in events] == [1, 2, 3], events
        assert [event.get("data") for event in events] == [None, "live-1", "live-2"], events


def watch(last):
    """The events of executions, up to the one with this data."""
    request = urllib.request.Request(f"{URL}/mcp/events", headers=HEADERS)
    events = []
    with urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                note = json.loads(line[len(b"data:") :])
                if note["method"] == "notifications/execution":
                    events += note["params"]["events"]
                    if any(event.get("data") == last for event in events):
                        return [event for event in events if event["type"] != "exit"]
    raise AssertionError(events)


async def sessions():
    """A connection lists its own executions only, and what it began ends with its session; it can be read by its id still."""
    async with connected() as other:
        async with connected() as client:
            assert (await client.good("list_executions"))["executions"] == []
            running = await client.begin("echo up; sleep 60")
            kept = (await client.good("execute_code", command="echo kept"))["execution_id"]
            theirs = {one["execution_id"] for one in (await client.good("list_executions"))["executions"]}
            assert theirs == {running, kept}, theirs
            assert (await other.good("list_executions"))["executions"] == []
        # The client has sent DELETE.
        got, ran = await other.end(running, "cancelled")
        assert got == ["ready", "stdout", "cancelled"], ran


async def restart():
    """What runs goes on while the daemon is killed and started again, and is heard to its end; without its container it is
    lost."""
    async with connected() as client:
        going = await client.begin("echo before; sleep 5; echo after")
        reader = await client.begin("read -r line; echo $line", interactive=True)
        for execution in (going, reader):
            await client.good("get_execution_output", execution_id=execution, wait=True, since=0)
        await flow.restart()
        await client.good("send_stdin", execution_id=reader, input_data="there again")
        got, ran = await client.end(reader, "completed")
        assert data(ran) == ["there again"], ran
        got, ran = await client.end(going, "completed")
        assert data(ran) == ["before", "after"] and ran["output"][0]["seq"] == 1, ran
        lost = await client.begin("echo up; sleep 60")
        await client.good("get_execution_output", execution_id=lost, wait=True, since=1)
        await flow.restart()
        got, ran = await client.end(lost, "lost")
        assert got == ["ready", "stdout", "error"] and ran["exit_code"] is None, ran
        old = await client.good("get_execution_status", execution_id=going)
        assert old["status"] == "completed" and old["exit_code"] == 0, old


async def settings():
    """A daemon with limits and a token that were set by S1's variables."""
    try:
        urllib.request.urlopen(MCP, b"{}")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error
    else:
        raise AssertionError("it wants no token")
    with urllib.request.urlopen(f"{URL}/health") as health:
        assert json.load(health)["status"] == "healthy"
    async with connected() as one, connected() as two:
        ran, failed = await one.call("execute_code", command="sleep 30")
        assert failed and types(ran) == ["ready", "timeout"] and ran["output"][1]["timeout_seconds"] == 2, ran
        begun = [await client.begin("sleep 30", timeout_seconds=60) for client in (one, one, two)]
        # Two of this session, three in all: another one waits until one of them has ended.
        waiting = [asyncio.create_task(client.good("execute_code", command="echo in")) for client in (one, two)]
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting), waiting
        await one.good("cancel_execution", execution_id=begun[0], force=True)
        for task in waiting:
            assert types(await task) == ["ready", "stdout", "exit"]


async def main(part):
    await globals()[part]()
    print("done")


asyncio.run(main(sys.argv[1]))
