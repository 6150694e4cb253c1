"""What is right: the thing that was asked for, in few words."""

from __future__ import annotations

WORKS = {
    "The Red Harbour": (14, "Ida Holm", 1871),
    "Two Herons": (3, "Jan Veld", 1902),
    "The Glass Boat": (22, "Ruth Amsel", 1934),
    "Winter Fair": (9, "Ida Holm", 1866),
    "The Orchard Wall": (17, "Paul Grien", 1911),
    "Night Train": (31, "Lena Voss", 1928),
    "A Bowl of Plums": (6, "Jan Veld", 1899),
    "The Salt Road": (25, "Omar Haddad", 1947),
    "The Lock Keeper": (2, "Mira Stahl", 1889),
    "Harvest Moon": (11, "Omar Haddad", 1951),
    "The Blue Stairs": (27, "Lena Voss", 1931),
    "Seven Lanterns": (19, "Ruth Amsel", 1929),
    "A Quiet Street": (5, "Paul Grien", 1908),
    "The Ferry": (33, "Mira Stahl", 1893),
    "Snow at Noon": (12, "Ida Holm", 1869),
    "The Weaver": (8, "Tom Okafor", 1962),
    "Low Tide": (21, "Jan Veld", 1905),
    "The Tin Drum": (29, "Tom Okafor", 1966),
}
TOURS = {"Monday": "10:30", "Tuesday": "11:15", "Thursday": "14:00", "Friday": "16:45", "Sunday": "12:20"}
LONGEST = 8
"""Words of a right answer, at most."""


def right(question: str, answer: str) -> bool:
    """True if a visitor sees at a glance what was asked."""
    if len(answer.split()) > LONGEST:
        return False
    if day := next((day for day in TOURS if day in question), None):
        return TOURS[day] in answer
    room, painter, year = next(WORKS[work] for work in WORKS if work in question)
    if "painted" in question:
        return painter in answer and str(year) in answer
    return f"Room {room}" in answer
