// Reads a shop's pages with fetch and cheerio over the network, and saves the products as JSON.
// network: true
// prints: Products: 4
// prints: Most expensive: Tent ($120.00)
// makes: products.json
import { writeFileSync } from 'node:fs';
import * as cheerio from 'cheerio';

type Product = { name: string; price: number };
const products: Product[] = [];
let url: string | undefined = 'http://far.example/shop.html';
while (url) {
  const response: Response = await fetch(url, { headers: { 'user-agent': 'price-watch/1.0' }, signal: AbortSignal.timeout(10_000) });
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  const $ = cheerio.load(await response.text());
  $('li.product').each((_index, item) => {
    products.push({ name: $(item).find('.name').text().trim(), price: Number($(item).find('.price').text().replace('$', '')) });
  });
  const following: string | undefined = $('a[rel=next]').attr('href');
  url = following && new URL(following, url).href;
}
writeFileSync('/data/products.json', JSON.stringify(products, null, 2));
console.log('Products:', products.length);
const most = products.toSorted((a, b) => b.price - a.price)[0];
console.log(`Most expensive: ${most.name} ($${most.price.toFixed(2)})`);
