// Turns Markdown files with YAML headers into HTML pages with a table of contents (plain JavaScript, CommonJS).
// prints: Pages: 2
// prints: index.html links to: second.html, first.html
// makes: site/index.html
const fs = require('fs');
const path = require('path');
const yaml = require('js-yaml');
const { marked } = require('marked');
const cheerio = require('cheerio');
const _ = require('lodash');

const sources = {
  'first.md': '---\ntitle: First steps\ndate: 2026-01-10\n---\n# First steps\n\nInstall it, then *run* it.\n',
  'second.md': '---\ntitle: More\ndate: 2026-02-03\n---\n# More\n\n| a | b |\n|---|---|\n| 1 | 2 |\n',
};
const folder = '/data/site';
fs.mkdirSync(folder, { recursive: true });

const pages = Object.entries(sources).map(([name, source]) => {
  const [, header, body] = source.match(/^---\n([\s\S]*?)\n---\n([\s\S]*)$/);
  const page = { ...yaml.load(header), file: name.replace('.md', '.html'), html: marked.parse(body) };
  fs.writeFileSync(path.join(folder, page.file), `<!doctype html><title>${page.title}</title>${page.html}`);
  return page;
});
const sorted = _.orderBy(pages, 'date', 'desc');
fs.writeFileSync(path.join(folder, 'index.html'), `<ul>${sorted.map((page) => `<li><a href="${page.file}">${page.title}</a></li>`).join('')}</ul>`);

const $ = cheerio.load(fs.readFileSync(path.join(folder, 'index.html'), 'utf8'));
console.log('Pages:', pages.length);
console.log('index.html links to:', $('a').map((_index, link) => $(link).attr('href')).get().join(', '));
