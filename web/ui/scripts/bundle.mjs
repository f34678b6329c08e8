// Packs what Vite built (a .br and a .gz beside every file that gets smaller), and
// fails when the page became too large to download.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const limit = 350 * 1000;
const dist = new URL('../dist/', import.meta.url).pathname;
const packable = /\.(js|css|html|svg|json|webmanifest)$/;
let total = 0;

const size = (n) => `${(n / 1000).toFixed(1).padStart(7)} kB`;
for (const name of readdirSync(dist, { recursive: true }).sort()) {
  const file = join(dist, name);
  if (!statSync(file).isFile() || !packable.test(name)) continue;
  const plain = readFileSync(file);
  const gz = gzipSync(plain, { level: 9 });
  const br = brotliCompressSync(plain, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  total += gz.length;
  console.log(`${size(plain.length)}  gzip ${size(gz.length)}  br ${size(br.length)}  ${name}`);
  // index.html is changed with every answer, so it cannot be packed beforehand.
  if (name === 'index.html' || gz.length >= plain.length) continue;
  writeFileSync(`${file}.gz`, gz);
  writeFileSync(`${file}.br`, br);
}
console.log(`page: ${size(total).trim()} gzipped, of ${size(limit).trim()} allowed`);
if (total === 0 || total > limit) {
  console.error(total === 0 ? `nothing was built in ${dist}` : 'the page is too large: load less, or load it later');
  process.exit(1);
}
