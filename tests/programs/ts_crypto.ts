// Hashes, signs and encrypts a message, and shows that a changed one is refused.
// prints: SHA-256: 315f5bdb76d078c43b8ac0064e4a0164612b1fce77c869345bfc94c75894edd3
// prints: Decrypted: Hello, world!
// prints: A changed message: refused
import { createCipheriv, createDecipheriv, createHash, createHmac, generateKeyPairSync, randomBytes, scryptSync, sign, timingSafeEqual, verify } from 'node:crypto';

const message = 'Hello, world!';
console.log('SHA-256:', createHash('sha256').update(message).digest('hex'));

const mac = (text: string) => createHmac('sha256', 'secret').update(text).digest();
console.log('Authentic:', timingSafeEqual(mac(message), mac(message)));

const key = scryptSync('correct horse battery staple', randomBytes(16), 32);
const nonce = randomBytes(12);
const cipher = createCipheriv('aes-256-gcm', key, nonce);
const encrypted = Buffer.concat([cipher.update(message, 'utf8'), cipher.final()]);
const tag = cipher.getAuthTag();

function decrypt(data: Buffer): string {
  const decipher = createDecipheriv('aes-256-gcm', key, nonce);
  decipher.setAuthTag(tag);
  return Buffer.concat([decipher.update(data), decipher.final()]).toString('utf8');
}
console.log('Decrypted:', decrypt(encrypted));
encrypted[0] ^= 1;
try {
  decrypt(encrypted);
  console.log('A changed message: accepted');
} catch {
  console.log('A changed message: refused');
}

const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const signature = sign(null, Buffer.from(message), privateKey);
console.log('Signature valid:', verify(null, Buffer.from(message), publicKey, signature));
