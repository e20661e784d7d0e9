"""What stands on the website on the first day."""

from pathlib import Path

from examples.quickstart.site import SCHEMA, Site

EDITOR = "7"
"""Edits the pages 42 and 43, and reads the others."""
APPROVER = "8"
"""Edits every page, and may release what an agent wants to write."""

_PEOPLE = [(EDITOR, 1, 0), (APPROVER, 1, 1)]

_PAGES = [
    (1, "The library", "Books, newspapers and quiet tables in the old customs house by the river."),
    (12, "Opening hours", "When the doors are open, on weekdays, on Saturdays and on holidays."),
    (42, "The seed library", "Page about seeds."),
    (43, "Borrowing", "How many books, for how long, and what happens when one is late."),
    (57, "The reading room", "Twenty tables, good light, and newspapers from nine countries."),
]

_EDITED_BY_THE_EDITOR = {42, 43}

_ELEMENTS = [
    (1, "Welcome", "The library belongs to everybody who comes in. You need no card to read here."),
    (12, "Weekdays", "Monday to Friday from nine to seven. On Thursdays until nine in the evening."),
    (
        42,
        "How it works",
        "In the drawers beside the stairs there are some two hundred kinds of seed: beans, lettuce, tomatoes,"
        " sunflowers. Take what you can sow. You need no card, and there is nothing to pay.",
    ),
    (
        42,
        "Growing for seed",
        "Leave two or three of your best plants standing until their seed is ripe. Dry it on paper, away"
        " from the sun, and write on the bag what it is and when it was picked.",
    ),
    (43, "With a card", "Ten books for four weeks. You may extend the loan twice if nobody waits for the book."),
    (57, "Quiet", "Whisper, please. For a talk there is the room with the stove, on the ground floor."),
]


def build_site(path: Path) -> Site:
    """Make the site's file."""
    site = Site(path)
    with site.connection() as db:
        db.execute("PRAGMA journal_mode = WAL")  # so that who reads waits for no one who writes
        db.executescript(SCHEMA)
    with site.transaction() as db:
        db.executemany("INSERT INTO people VALUES (?, ?, ?)", _PEOPLE)
        db.executemany("INSERT INTO pages VALUES (?, ?, ?)", _PAGES)
        for page_id, *_ in _PAGES:
            db.execute("INSERT INTO page_rights VALUES (?, ?, ?)", (EDITOR, page_id, page_id in _EDITED_BY_THE_EDITOR))
            db.execute("INSERT INTO page_rights VALUES (?, ?, 1)", (APPROVER, page_id))
        db.executemany("INSERT INTO content_elements (page, heading, body, published) VALUES (?, ?, ?, 1)", _ELEMENTS)
    return site
