// There is no network: what programs get to see.
import * as http from 'node:http';
import { lookup } from 'node:dns/promises';
try { await fetch('http://127.0.0.1:9/'); } catch (error: any) { console.log(error.name, error.message, error.cause?.code); }
try { await fetch('https://example.invalid/'); } catch (error: any) { console.log(error.name, error.message, error.cause?.code); }
try { await lookup('example.invalid'); } catch (error: any) { console.log(error.code, error.syscall); }
await new Promise((resolve) => http.get('http://127.0.0.1:9/').on('error', (error: any) => resolve(console.log(error.code, error.message))));
const controller = new AbortController();
setTimeout(() => controller.abort(), 5);
try { await new Promise((_, reject) => controller.signal.addEventListener('abort', () => reject(controller.signal.reason))); } catch (error: any) { console.log(error.name, error.message, error.code); }
try { await fetch('http://127.0.0.1:9/', { signal: AbortSignal.abort() }); } catch (error: any) { console.log(error.name); }
console.log(await AbortSignal.timeout(5).aborted, new Headers({ a: 'b' }).get('A'), await new Response('{"x":1}').json());
