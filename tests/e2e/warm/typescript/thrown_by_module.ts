// An ES module that throws while it is evaluated, with a cause and properties of its own.
import { readFile } from 'node:fs/promises';
class ConfigError extends Error { constructor(readonly path: string, options: ErrorOptions) { super(`cannot read ${path}`, options); this.name = 'ConfigError'; } }
try {
  await readFile('config.json', 'utf8');
} catch (cause) {
  throw new ConfigError('config.json', { cause });
}
