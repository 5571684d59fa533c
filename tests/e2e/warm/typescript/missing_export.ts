// An import of a name that the module does not have.
import { readFileSink } from 'node:fs';
console.log('never', readFileSink);
