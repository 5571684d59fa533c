# Dates, times, zones, calendars, decimals, statistics.
import datetime as dt, calendar, zoneinfo, time, decimal, fractions, statistics, collections, itertools, re, string, textwrap, heapq, bisect, operator, math, cmath
print(dt.datetime(2024, 2, 29, tzinfo=zoneinfo.ZoneInfo('Asia/Tokyo')), calendar.month(2024, 2), time.strftime('%Z', time.gmtime(0)), time.tzname, time.localtime(0)[:6])
print(dt.datetime.strptime('1 Feb 2024', '%d %b %Y').isoformat(), decimal.Decimal('1') / 3, decimal.getcontext(), fractions.Fraction(1, 3), statistics.stdev([1, 2, 4]))
print(collections.Counter('abca').most_common(1), list(itertools.permutations('ab')), re.findall(r'\d+', 'a1b22'), textwrap.fill('word ' * 20, 30), math.comb(5, 2))
dt.datetime.strptime('x', '%Y')
