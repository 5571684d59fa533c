"""llm-sandbox's pool, standing: a line of JSON in is a run, a line of JSON out is how long it took.

Its containers are made from our Python runner's image, so that both measure one interpreter; beside that it is used
as its README says. It must never be asked for less than its users are: `pooled` is open, run, close, which is what one
request costs them; `held` is a run in a session that stays open. Usage: llm_sandbox_pool.py IMAGE LABEL
"""

import json
import logging
import sys
import time

from llm_sandbox.pool import PoolConfig, PooledSandboxSession, create_pool_manager

STANDING = 2
START = 30  # seconds until its containers can run code

# The virtual environment that it makes itself in a container, without asking PyPI for a newer pip; it runs code by it.
VENV = "python3 -m venv --without-pip --system-site-packages /sandbox/.sandbox-venv && sleep infinity"


def main(image: str, label: str) -> None:
    logging.disable(logging.CRITICAL)
    pool = create_pool_manager(
        backend="docker",
        config=PoolConfig(min_pool_size=STANDING, max_pool_size=STANDING),
        lang="python",
        image=image,
        skip_environment_setup=True,
        # It stops its containers, for which `sleep` has no ear.
        runtime_configs={"entrypoint": ["sh", "-c", VENV], "labels": [label], "stop_signal": "SIGKILL"},
    )
    held = PooledSandboxSession(pool_manager=pool)
    try:
        held.open()
        until = time.monotonic() + START
        while (result := held.run("print('hi')")).exit_code != 0:
            if time.monotonic() > until:
                raise RuntimeError(f"no run within {START} s: {result}")
            time.sleep(0.1)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            begun = time.perf_counter_ns()
            if asked["way"] == "held":
                result = held.run(asked["code"])
            else:
                with PooledSandboxSession(pool_manager=pool) as session:
                    result = session.run(asked["code"])
            micros = (time.perf_counter_ns() - begun) // 1000
            answer = {"micros": micros, "stdout": result.stdout, "exit_code": result.exit_code, "stderr": result.stderr}
            print(json.dumps(answer), flush=True)
    finally:
        held.close()
        pool.close()


main(*sys.argv[1:])
