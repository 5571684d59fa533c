// Dates, numbers and texts in languages: the locale is the one that node starts with.
const date = new Date(Date.UTC(2024, 1, 29, 13, 45, 30, 123));
console.log(Intl.DateTimeFormat().resolvedOptions().locale, Intl.DateTimeFormat().resolvedOptions().timeZone, date.getTimezoneOffset());
console.log(date.toISOString(), date.toString(), date.toLocaleString(), date.toLocaleDateString('de-DE', { weekday: 'long', month: 'long', day: 'numeric', timeZone: 'UTC' }));
console.log((1234567.891).toLocaleString(), (1234.5).toLocaleString('de-DE', { style: 'currency', currency: 'EUR' }), new Intl.NumberFormat('en-IN').format(12345678));
console.log(new Intl.PluralRules('ar').select(3), new Intl.ListFormat('en').format(['a', 'b', 'c']), new Intl.RelativeTimeFormat('fr').format(-2, 'day'), ['ä', 'z', 'a'].sort(new Intl.Collator('sv').compare));
console.log([...new Intl.Segmenter('en', { granularity: 'grapheme' }).segment('👩‍👩‍👧é')].length, 'İ'.toLocaleLowerCase('tr'), 'ǆ'.toLocaleUpperCase(), 'é'.normalize('NFD').length);
console.log(new Date('2024-03-31T02:30:00+01:00').getTime(), new Date(NaN).getTime(), Date.parse('Thu, 01 Jan 1970 00:00:00 GMT'), new Date(2024, 0, 31).getDay());
process.env.TZ = 'America/New_York'; console.log(date.toString(), new Date(2024, 6, 1).getTimezoneOffset());
