# Tasks and loops that are left behind.
import asyncio
async def never(): await asyncio.sleep(60)
async def main():
    global t
    t = asyncio.create_task(never()); await asyncio.sleep(0)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
print('end')
