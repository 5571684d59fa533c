#!/usr/bin/env -S node --no-warnings
// A first line for a shell, a byte order mark's absence, regular expressions that look like comments, odd names.
'use strict';
const $ = (strings: TemplateStringsArray, ...values: unknown[]) => strings.raw.join('|') + values.join();
const Ünïcödé = 'ok', re = /\/\*[^*]*\*\//g, html = `</script> ${$`a${1}\n${2}`}`;
var async = 1, of = 2, type = 3, as = 4, get = 5, satisfies = 6, declare = 7, namespace = 8, abstract = 9;
console.log(Ünïcödé, '/* c */x'.replace(re, ''), html, async + of + type + as + get + satisfies + declare + namespace + abstract);
const { a: { b: [, second = 'none'] = [] } = {}, ...others } = { a: { b: [1] }, c: 3 } as any; console.log(second, others, 1_000, 0b11, 0o17, .5, 2 ** -1, null ?? 'n', void 0);
console.log((() => { try { return 'try'; } finally { console.log('finally'); } })(), typeof this, eval('1 + 1'), Function('return this')() === globalThis); // @ts-expect-error
