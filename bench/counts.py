"""What one run costs, by process: page faults, system calls, forks and context switches, which other work on the machine
hardly changes, and the processor time of its container, which it does change.

    bench/counts.py [--runs N] [--store DIRECTORY] [--syscalls] PROGRAM [python|pandas|typescript]...

It starts PROGRAM (a `paddock` binary) with containers of its own, waits until a restored warm part stands, and runs each
program N times, with a rest before each run. A store that is kept has the snapshots too, so that the next start is quick.
PADDOCK_TEST_PYTHON and PADDOCK_TEST_TYPESCRIPT name other images. It needs root, `docker`, `perf`, and `strace` for
`--syscalls`, which lists the calls of each process. It must never count the work of another daemon's containers, nor leave
one of its own behind.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = {
    "python": ("python", "print('hi')", "hi\n"),
    "pandas": ("python", "import pandas as pd; print(pd.DataFrame({'n': [1, 2, 3]})['n'].sum())", "6\n"),
    "typescript": ("typescript", "const hi: string = 'hi'; console.log(hi)", "hi\n"),
}
CONFIG = """
http.addr = "127.0.0.1:0"
pool = {{ idle = 1, max_containers = 20, uids = "34100-34199" }}
runners = {{ python = "{python}", typescript = "{typescript}" }}
"""
EVENTS = {
    "page-faults": "faults that stopped it",
    "raw_syscalls:sys_enter": "system calls",
    "sched:sched_process_fork": "forks",
    "context-switches": "context switches",
}
# Of a container that stood before there was a snapshot, the warm part has imported: it is replaced.
RESTORED = r"(?s)(?:the warm part was taken|is what was saved) .* warm language=python [^\n]*restored=true"
REST = 0.015
WARM_UP = 30


class Daemon:
    def __init__(self, program, directory, store):
        self.token = secrets.token_hex(16)
        self.log, self.store = directory / "log", store or directory / "store"
        config = directory / "counts.toml"
        images = {name: os.environ.get(f"PADDOCK_TEST_{name.upper()}", f"paddock-runner-{name}") for name in ("python", "typescript")}
        config.write_text(CONFIG.format(**images))
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "MCP_API_TOKEN": self.token}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [program, "serve", "--config", config, "--store", self.store], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)

    def connect(self):
        self.connection = http.client.HTTPConnection(self.wait(r" serving .*addr=(\S+)", 120).group(1))
        self.wait(RESTORED, 600)

    def wait(self, pattern, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(pattern, self.log.read_text()):
                return found
            time.sleep(0.1)
        sys.exit(f"the daemon did not say {pattern!r}; its log ends with:\n{self.log.read_text()[-2000:]}")

    def run(self, name, session):
        language, code, prints = PROGRAMS[name]
        arguments = {"language": language, "session_id": session, "code": code}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_code", "arguments": arguments}}
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json",
                   "Accept": "application/json, text/event-stream"}
        self.connection.request("POST", "/mcp", json.dumps(message), headers)
        document = json.loads(self.connection.getresponse().read())["result"]["structuredContent"]
        if document["stdout"] != prints:
            sys.exit(f"unexpected: {document}")

    def runs(self, count, name, session):
        for _ in range(count):
            time.sleep(REST)
            self.run(name, session)
        time.sleep(0.3)  # for what is left behind the last answer

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def output(*command):
    return subprocess.check_output(command, text=True).split()


def container_of(daemon, name, session):
    """The PID of the first process of the session's container: of the daemon's, that which runs of the session use."""
    owner = (daemon.store / "owner").read_text().strip()
    containers = output("docker", "ps", "-q", "--no-trunc", "--filter", f"label=paddock.owner={owner}")
    pids = [int(pid) for pid in output("docker", "inspect", "-f", "{{.State.Pid}}", *containers)]
    before = {pid: processor(pid) for pid in pids if pid > 0}  # 0: the engine makes or removes it at this moment
    daemon.runs(10, name, session)
    return max(before, key=lambda pid: processor(pid) - before[pid])


def group(pid, controller):
    """The folder of a process's control group, version 1 or 2."""
    lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return pathlib.Path(f"/sys/fs/cgroup/{names}{path}")
    return pathlib.Path(f"/sys/fs/cgroup{lines[-1].split(':', 2)[2]}")


def fields(path):
    return {line.split()[0]: int(line.split()[1]) for line in path.read_text().splitlines()}


def processor(pid):
    """Microseconds that the container of this process has used."""
    at = group(pid, "cpuacct")
    first = at / "cpuacct.usage"
    return int(first.read_text()) / 1000 if first.exists() else fields(at / "cpu.stat")["usage_usec"]


def faults(pid):
    all = fields(group(pid, "memory") / "memory.stat")
    return all.get("total_pgfault", all.get("pgfault"))


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def count(daemon, name, runs, lists_calls):
    session = f"counts-{name}"
    for _ in range(WARM_UP):
        daemon.run(name, session)
    init = container_of(daemon, name, session)
    # The children of the parts come and go, and are counted with them.
    parts = [pid for job in children(init) for pid in [job, *children(job)]]
    groups = {"the daemon": [daemon.process.pid], "PID 1": [init], "the warm parts": parts}
    before = processor(init), faults(init)
    daemon.runs(runs, name, session)
    spent, faulted = processor(init) - before[0], faults(init) - before[1]
    print(f"{name}: {faulted / runs:.0f} page faults and {spent / runs:.0f} µs of processor in its container")
    counters = [(what, watch("perf", "stat", "-x;", f"-e{','.join(EVENTS)}", f"-p{','.join(map(str, pids))}")) for what, pids in groups.items()]
    time.sleep(0.5)
    daemon.runs(runs, name, session)
    for what, counter in counters:
        counter.send_signal(signal.SIGINT)
        lines = [line.split(";") for line in counter.communicate()[1].splitlines()]
        found = {line[2]: float(line[0]) for line in lines if len(line) > 2 and re.match(r"[\d.]+$", line[0])}
        print(f"  {what}: " + ", ".join(f"{found[event] / runs:.1f} {text}" for event, text in EVENTS.items() if event in found))
    for what, pids in groups.items() if lists_calls else ():
        list_calls(daemon, (name, session), what, pids)


def watch(*command):
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def list_calls(daemon, session, what, pids, runs=20):
    with tempfile.NamedTemporaryFile("r") as calls:
        tracer = watch("strace", "-f", "-q", "-o", calls.name, *(f"-p{pid}" for pid in pids))
        time.sleep(2)
        calls.seek(0, 2)
        daemon.runs(runs, *session)
        tracer.send_signal(signal.SIGINT)
        tracer.communicate()
        found = collections.Counter(match.group(1) for line in calls if (match := re.match(r"\d+ +(\w+)\(", line)))
    print(f"  {what}: " + ", ".join(f"{name} {times / runs:.1f}" for name, times in found.most_common() if times >= runs / 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*", help=", ".join(PROGRAMS))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--store", type=pathlib.Path)
    parser.add_argument("--syscalls", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="counts-") as directory:
        daemon = Daemon(wanted.program, pathlib.Path(directory), wanted.store)
        try:
            daemon.connect()
            time.sleep(5)  # until the engine has removed the container that was replaced
            for name in wanted.names or ["python"]:
                count(daemon, name, wanted.runs, wanted.syscalls)
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
