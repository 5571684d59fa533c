// Plans payments at the end of each month with date-fns, and shows a date in several languages and zones.
// prints: 2026-02-28 (Saturday -> 2026-02-27)
// prints: ja-JP: 2026年3月29日日曜日
// prints: Tokyo: 2026/03/29 21:30
import { addMonths, differenceInBusinessDays, endOfMonth, format, isWeekend, parseISO, previousFriday } from 'date-fns';
import { DateTime } from 'luxon';

const start = parseISO('2026-01-31');
for (let month = 0; month < 4; month++) {
  const end = endOfMonth(addMonths(start, month));
  const paid = isWeekend(end) ? previousFriday(end) : end;
  console.log(`${format(end, 'yyyy-MM-dd')} (${format(end, 'EEEE')} -> ${format(paid, 'yyyy-MM-dd')})`);
}
console.log('Business days in the first quarter:', differenceInBusinessDays(parseISO('2026-04-01'), parseISO('2026-01-01')));

const moment = new Date(Date.UTC(2026, 2, 29, 12, 30));
for (const locale of ['en-GB', 'de-DE', 'ja-JP', 'ar-EG']) {
  console.log(`${locale}: ${new Intl.DateTimeFormat(locale, { dateStyle: 'full', timeZone: 'Europe/Berlin' }).format(moment)}`);
}
console.log('Tokyo:', DateTime.fromJSDate(moment).setZone('Asia/Tokyo').toFormat('yyyy/MM/dd HH:mm'));
