// Hashes, ciphers, keys, random numbers.
import * as crypto from 'crypto';
import { promisify } from 'util';
for (const name of ['md5', 'sha1', 'sha256', 'sha512']) console.log(name, crypto.createHash(name).update('héllo').digest('hex'));
console.log(crypto.createHmac('sha256', 'key').update('x').digest('base64url'), crypto.hash('sha1', 'x'));
const key = crypto.scryptSync('password', 'salt', 32), iv = Buffer.alloc(16, 1);
const cipher = crypto.createCipheriv('aes-256-gcm', key, iv), secret = Buffer.concat([cipher.update('secret'), cipher.final()]);
const back = crypto.createDecipheriv('aes-256-gcm', key, iv); back.setAuthTag(cipher.getAuthTag());
console.log(secret.toString('hex'), back.update(secret, undefined, 'utf8') + back.final('utf8'));
console.log((await promisify(crypto.pbkdf2)('p', 's', 1000, 16, 'sha256')).toString('hex'), crypto.randomUUID().length, crypto.randomBytes(8).length, crypto.randomInt(5) < 5);
const { publicKey, privateKey } = crypto.generateKeyPairSync('ed25519');
console.log(crypto.verify(null, Buffer.from('m'), publicKey, crypto.sign(null, Buffer.from('m'), privateKey)), publicKey.asymmetricKeyType);
const digest = await globalThis.crypto.subtle.digest('SHA-256', new TextEncoder().encode('x'));
console.log(Buffer.from(digest).toString('hex'), crypto.timingSafeEqual(Buffer.from('a'), Buffer.from('a')), crypto.getHashes().length > 10);
try { crypto.createHash('nope'); } catch (error: any) { console.log(error.message, error.code); }
