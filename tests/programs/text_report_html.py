# Renders a report from YAML data: Markdown by a Jinja template, then HTML.
# prints: Sections: 2
# prints: <li><strong>Build</strong>: done</li>
# makes: report.html
import jinja2
import markdown
import yaml
from bs4 import BeautifulSoup

data = yaml.safe_load("""
title: Release 2.1
sections:
  - name: Tasks
    items: [{name: Build, state: done}, {name: Docs, state: open}]
  - name: Risks
    items: [{name: Migration, state: low}]
""")
template = jinja2.Template("""# {{ title }}
{% for section in sections %}
## {{ section.name }}

{% for item in section["items"] -%}
- **{{ item.name }}**: {{ item.state }}
{% endfor %}{% endfor %}""")
html = markdown.markdown(template.render(**data), extensions=["tables"])
with open("/data/report.html", "w") as file:
    file.write(f"<!doctype html><meta charset=utf-8><title>{data['title']}</title>{html}")

soup = BeautifulSoup(html, "html.parser")
print("Sections:", len(soup.find_all("h2")))
for item in soup.find_all("li"):
    print(item)
