# Reads a shop's pages over the network, follows the link to the next one, and saves the prices.
# network: true
# prints: Pages read: 2
# prints: Cheapest: Compass (9.5)
# makes: prices.csv
import csv
from urllib.parse import urljoin

import requests
from bs4 import BeautifulSoup

session = requests.Session()
session.headers["User-Agent"] = "price-watch/1.0"
url, products, pages = "http://far.example/shop.html", [], 0
while url:
    response = session.get(url, timeout=10)
    response.raise_for_status()
    soup = BeautifulSoup(response.text, "lxml")
    pages += 1
    for item in soup.select("li.product"):
        products.append({"name": item.select_one(".name").get_text(strip=True), "price": float(item.select_one(".price").text.lstrip("$"))})
    following = soup.select_one("a[rel=next]")
    url = urljoin(url, following["href"]) if following else None

with open("/data/prices.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, fieldnames=["name", "price"])
    writer.writeheader()
    writer.writerows(products)
print("Pages read:", pages)
cheapest = min(products, key=lambda product: product["price"])
print(f"Cheapest: {cheapest['name']} ({cheapest['price']})")
