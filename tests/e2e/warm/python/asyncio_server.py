# A server and a client on a socket of the file system.
import asyncio
async def serve(r, w):
    w.write((await r.readline()).upper()); await w.drain(); w.close()
async def main():
    s = await asyncio.start_unix_server(serve, '/data/s')
    r, w = await asyncio.open_unix_connection('/data/s')
    w.write(b'hello\n'); print(await r.read()); w.close(); s.close()
asyncio.run(main())
__import__('os').path.exists('/data/s') and __import__('os').unlink('/data/s')
