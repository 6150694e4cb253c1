"""The tools of the desk: a table of articles beside it, and the shop's services over HTTP."""

import csv
import json
import os
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
with open(HERE / "articles.csv", encoding="utf-8", newline="") as table:
    ARTICLES = {row["article"]: row for row in csv.DictReader(table)}
ZONES = json.loads((HERE / "zones.json").read_text(encoding="utf-8"))


def fetch(service, key):
    """What one of the shop's services says of a key."""
    query = urllib.parse.urlencode({"key": key})
    with urllib.request.urlopen(f"{os.environ['SHOP_URL']}/{service}?{query}", timeout=10) as response:
        return json.load(response)


def price(article):
    row = ARTICLES[article]
    return {"article": article, "brand": row["brand"], "price": float(row["price"])}


def stock(article):
    pieces = fetch("stock", article)["pieces"]
    return {"article": article, "available": pieces > 0}


def delivery(price, count, town):
    return {"total": round(price * count + ZONES[town], 2)}


def discount(price, percent):
    return {"reduced": round(price * (100 - percent) / 100, 2)}


def convert(amount, unit, into):
    litres = {"litres": 1.0, "gallons": 3.785, "buckets": 10.0}
    return {"amount": round(amount * litres[unit] / litres[into], 1), "unit": into}


def weight(article, count):
    return {"kilograms": round(float(ARTICLES[article]["weight"]) * count + 0.5, 1)}


def card(code):
    return {"card": code, "balance": fetch("cards", code.upper())["balance"]}


def deposit(article):
    return {"article": article, "deposit": fetch("rental", article)["deposit"]}


def order(number):
    return {"order": number, **fetch("orders", number)}


def returns(number, days):
    return {"order": number, "returnable": days <= 30}


def cancel(number):
    answer = fetch("cancellation", number)
    state = answer["state"] if "state" in answer else answer["status"]
    return {"order": number, "cancellable": state == "packed"}


def invoice(number):
    answer = fetch("invoices", number)
    return {"invoice": number, "sum": answer["cents"] / 100 if "cents" in answer else answer["sum"]}


def zone(town):
    return {"town": town, "days": 2 if ZONES[town] < 6 else 4}


def warranty(article):
    return {"article": article, "warranty": int(ARTICLES[article]["warranty"])}


def manual(task):
    return {"task": task, "steps": fetch("manual", task)["steps"]}


def hours(town, day):
    return {"town": town, "opens": fetch("hours", f"{town} {day}")["opens"]}


def frost(plant):
    return {"plant": plant, "month": fetch("frost", plant)["month"]}


def soil(plant):
    return {"plant": plant, "soil": fetch("soil", plant)["soil"]}


def poison(plant, animal):
    return {"plant": plant, "animal": animal, "poisonous": fetch("poison", f"{plant} {animal}")["poisonous"]}


def place(town):
    return {"town": town, **fetch("places", town)}


def maker(article):
    return {"article": article, "brand": ARTICLES[article]["brand"]}


def call(name, arguments):
    """One tool call; an error is its result, as the model has to see it."""
    try:
        return globals()[name](**arguments)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
