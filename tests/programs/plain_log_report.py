# Parses an access log with a regular expression and reports errors and slow requests.
# prints: Requests: 400, errors: 53 (13.2%)
# prints: Slowest path: /api/report
# makes: report.txt
import random
import re
from collections import defaultdict
from statistics import mean, quantiles

random.seed(7)
PATHS = {"/": 20, "/login": 80, "/api/items": 120, "/api/report": 900}
lines = []
for i in range(400):
    path = random.choice(list(PATHS))
    status = random.choices([200, 404, 500], [85, 10, 5])[0]
    milliseconds = max(1, int(random.gauss(PATHS[path], PATHS[path] / 4)))
    lines.append(f'10.0.0.{i % 250} - - [12/Mar/2026:10:{i // 60:02}:{i % 60:02}] "GET {path} HTTP/1.1" {status} {milliseconds}ms')

pattern = re.compile(r'(?P<ip>\S+) .* "(?P<method>\w+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<ms>\d+)ms')
times, errors = defaultdict(list), 0
for line in lines:
    match = pattern.match(line)
    if not match:
        continue
    times[match["path"]].append(int(match["ms"]))
    errors += int(match["status"]) >= 400

report = [f"Requests: {len(lines)}, errors: {errors} ({errors / len(lines):.1%})"]
for path, values in sorted(times.items(), key=lambda item: -mean(item[1])):
    report.append(f"{path:<12} n={len(values):>3} mean={mean(values):7.1f} ms p95={quantiles(values, n=20)[-1]:7.1f} ms")
slowest = max(times, key=lambda path: mean(times[path]))
report.append(f"Slowest path: {slowest}")
print("\n".join(report))
with open("/data/report.txt", "w") as file:
    file.write("\n".join(report) + "\n")
