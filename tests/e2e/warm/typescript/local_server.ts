// A server and its client in one program.
import http from 'node:http';
import net from 'node:net';
import { once } from 'node:events';
const server = http.createServer((request, response) => { response.setHeader('x-path', request.url!); response.end(JSON.stringify({ method: request.method })); });
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as net.AddressInfo;
const answer = await fetch(`http://127.0.0.1:${port}/a?b=c`, { method: 'POST', body: 'x', headers: { connection: 'close' } });
console.log(answer.status, answer.headers.get('x-path'), await answer.json());
server.close();
const echo = net.createServer((socket) => socket.pipe(socket)).listen('/tmp/echo.sock');
await once(echo, 'listening');
const client = net.connect('/tmp/echo.sock');
client.end('hello');
for await (const part of client) console.log(String(part));
echo.close();
