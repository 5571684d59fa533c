# Runs jobs with asyncio, at most three at a time, and retries those that fail.
# prints: Finished 8 jobs, 2 of them after a retry
# prints: Never more than 3 at a time: True
import asyncio

running = most = 0
attempts = {}


async def job(number: int) -> int:
    global running, most
    running += 1
    most = max(most, running)
    try:
        await asyncio.sleep(0.001)
        attempts[number] = attempts.get(number, 0) + 1
        if number % 4 == 3 and attempts[number] == 1:
            raise ConnectionError(f"job {number} failed")
        return number * number
    finally:
        running -= 1


async def with_retry(number: int, limit: asyncio.Semaphore) -> int:
    async with limit:
        for attempt in range(3):
            try:
                return await job(number)
            except ConnectionError as error:
                print(f"{error}; attempt {attempt + 1}")
        raise RuntimeError("too many attempts")


async def main():
    limit = asyncio.Semaphore(3)
    results = await asyncio.gather(*(with_retry(n, limit) for n in range(8)))
    retried = sum(count > 1 for count in attempts.values())
    print("Results:", results)
    print(f"Finished {len(results)} jobs, {retried} of them after a retry")
    print("Never more than 3 at a time:", most <= 3)


asyncio.run(main())
