# asyncio: gather, tasks, timeouts, queues, errors, subprocesses.
import asyncio, sys
async def job(n):
    await asyncio.sleep(0.05 * (3 - n)); print('job', n); return n
async def main():
    print(await asyncio.gather(*(job(i) for i in range(3))))
    try: await asyncio.wait_for(asyncio.sleep(5), 0.05)
    except TimeoutError: print('timeout')
    async with asyncio.TaskGroup() as g: t = g.create_task(job(1))
    print(t.result(), await asyncio.to_thread(lambda: 'in a thread'))
    p = await asyncio.create_subprocess_exec('cat', stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    print(await p.communicate(b'piped'), asyncio.get_running_loop().get_debug())
    q = asyncio.Queue(); await q.put(1); print(await q.get())
    raise ValueError('out of main')
asyncio.run(main())
