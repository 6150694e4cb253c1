"""The catalogue, as the model may look things up in it."""

BOOKS = {
    "The Ferryman's Ledger": ("Harbour", "F 212"),
    "Bread from Seven Valleys": ("Mill Lane", "K 41"),
    "A Short History of Salt": ("Central", "G 930"),
    "The Owl in the Observatory": ("Harbour", "J 77"),
    "Knots and Splices": ("Central", "T 608"),
    "Winter Light": ("Mill Lane", "F 350"),
    "The Beekeeper's Year": ("Central", "N 512"),
    "Maps of the Low Country": ("Harbour", "G 118"),
    "Twelve Clockmakers": ("Mill Lane", "T 681"),
    "Under the Rowan": ("Central", "F 87"),
    "Rivers and Their Mills": ("Harbour", "T 532"),
    "The Winter Garden": ("Mill Lane", "N 305"),
}
TOOL = {
    "name": "look_up",
    "description": "Where a title stands: branch and shelf mark.",
    "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
}


def look_up(title: str) -> dict:
    branch, shelf = BOOKS.get(title, ("", ""))
    return (
        {"title": title, "branch": branch, "shelf_mark": shelf}
        if branch
        else {"title": title, "found": False}
    )
