"""What the front desk needs beside its tools: files, the clinic's systems over HTTP, days and times of day."""

import csv
import json
import os
import urllib.parse
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).parent


def sheet(name):
    """A CSV file as a dictionary of its rows by their first column."""
    with open(FOLDER / name, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {next(iter(row.values())): row for row in rows}


def document(name):
    """A JSON file."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def fetch(system, key):
    """What one of the clinic's systems holds under a key."""
    query = urllib.parse.urlencode({"key": key})
    with urllib.request.urlopen(f"{os.environ['SHOP_URL']}/{system}?{query}", timeout=10) as response:
        return json.load(response)


def short(weekday):
    """A weekday as the rota writes it."""
    return weekday[:3]


def earlier(clock, minutes):
    """The time of day that is so many minutes before another one."""
    hour, minute = clock.split(":")
    total = int(hour) * 60 + int(minute)
    total = total - minutes
    return f"{total // 60:02}:{total % 60:02}"


def topic_of(question, phrases):
    """The topic of the longest phrase that a question has; "general" without one."""
    said = question.lower()
    found = [phrase for phrase in phrases if phrase in said]
    return phrases[max(found, key=len)] if found else "general"


def newest(notes, most):
    """So many notes of a patient's file, the newest first; each begins with its date."""
    return sorted(notes, reverse=True)[:most]
