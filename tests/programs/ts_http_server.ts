// Starts a small JSON server with express, calls it with fetch and axios, and stops it.
// prints: GET /tasks: 200, 2 tasks
// prints: A task without a title: 400 title is required
import express from 'express';
import axios from 'axios';
import type { AddressInfo } from 'node:net';

type Task = { id: number; title: string; done: boolean };
const tasks: Task[] = [{ id: 1, title: 'Write tests', done: true }];

const app = express();
app.use(express.json());
app.get('/tasks', (_request, response) => void response.json(tasks));
app.post('/tasks', (request, response) => {
  const { title } = request.body as Partial<Task>;
  if (!title) return void response.status(400).json({ error: 'title is required' });
  const task: Task = { id: tasks.length + 1, title, done: false };
  tasks.push(task);
  response.status(201).json(task);
});

const server = app.listen(0, '127.0.0.1');
await new Promise((resolve) => server.once('listening', resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/tasks`;

const created = await axios.post<Task>(url, { title: 'Ship it' });
console.log(`POST /tasks: ${created.status}, id ${created.data.id}`);
const listed = await fetch(url);
console.log(`GET /tasks: ${listed.status}, ${((await listed.json()) as Task[]).length} tasks`);
const refused = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' });
console.log(`A task without a title: ${refused.status} ${((await refused.json()) as { error: string }).error}`);
server.closeAllConnections();
server.close();
