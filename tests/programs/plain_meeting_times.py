# Shows one meeting in four time zones and lists the working days until a deadline.
# prints: Tokyo       2026-03-10 00:00 JST
# prints: Working days until the deadline: 16
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

meeting = datetime(2026, 3, 9, 11, 0, tzinfo=ZoneInfo("America/New_York"))
zones = {"New York": "America/New_York", "London": "Europe/London", "Berlin": "Europe/Berlin", "Tokyo": "Asia/Tokyo"}

print("Meeting times:")
for city, zone in zones.items():
    local = meeting.astimezone(ZoneInfo(zone))
    print(f"{city:<11} {local:%Y-%m-%d %H:%M %Z}")

day, deadline = meeting.date(), date(2026, 3, 31)
working = 0
while day < deadline:
    if day.weekday() < 5:
        working += 1
    day += timedelta(days=1)
print(f"Working days until the deadline: {working}")
