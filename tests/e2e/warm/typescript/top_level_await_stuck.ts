// A top-level await that is never settled: node says so and ends with 13.
import { sep } from 'node:path';
console.log('before', sep);
await new Promise(() => {});
console.log('never');
