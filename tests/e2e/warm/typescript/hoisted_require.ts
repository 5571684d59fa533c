// A module that defines for itself what it is lent.
import { fileURLToPath } from 'url'; import { createRequire } from 'module'; import path from 'path';
const __filename = fileURLToPath(import.meta.url), __dirname = path.dirname(__filename);
const require = createRequire(import.meta.url);
console.log(__filename, __dirname, require('os').EOL.length, typeof require.resolve, Object.keys(require.cache).length);
if (process.argv[1] === fileURLToPath(import.meta.url)) console.log('main');
export default async function main(): Promise<void> { console.log('exported'); }
main().catch((error) => { console.error(error); process.exit(1); });
