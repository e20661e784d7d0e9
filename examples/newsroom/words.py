"""What the site says in its own voice, in each language."""

from collections.abc import Mapping
from typing import Final

from byline import WriteKind
from examples.newsroom.models import Language

WORDS: Final[Mapping[Language, Mapping[str, str]]] = {
    Language.EN: {
        "site": "The Sollwick Courier",
        "claim": "A small paper for a town with a large tide",
        "skip": "Skip to the text",
        "navigation": "Sections",
        "trail": "Where you are",
        "languages": "Other languages",
        "below": "In this section",
        "aside": "Beside the text",
        "language": "English",
        "not_found": "There is no such page",
        "not_found_text": "Perhaps it has moved, or it was never there. The tide comes back; try the front page.",
        "front_page": "To the front page",
        "footer": "The Courier and its town are made up. This site is an example of Byline.",
        "label": "Use of AI",
        "label_sentence": "Parts of this page were made with the help of AI.",
        "label_question": "What does that mean?",
        "label_decided": "People at this paper read such changes and decide about them.",
        "label_policy": "How we use AI",
    },
    Language.DE: {
        "site": "Der Sollwicker Kurier",
        "claim": "Eine kleine Zeitung für eine Stadt mit großer Tide",
        "skip": "Zum Text springen",
        "navigation": "Ressorts",
        "trail": "Wo Sie sind",
        "languages": "Andere Sprachen",
        "below": "In diesem Ressort",
        "aside": "Neben dem Text",
        "language": "Deutsch",
        "not_found": "Diese Seite gibt es nicht",
        "not_found_text": "Vielleicht ist sie umgezogen, vielleicht war sie nie da. Das Wasser kommt wieder; "
        "versuchen Sie es auf der Titelseite.",
        "front_page": "Zur Titelseite",
        "footer": "Den Kurier und seine Stadt gibt es nicht. Diese Seiten sind ein Beispiel für Byline.",
        "label": "Einsatz von KI",
        "label_sentence": "Teile dieser Seite sind mit Hilfe von KI entstanden.",
        "label_question": "Was heißt das?",
        "label_decided": "Menschen in dieser Redaktion lesen solche Änderungen und entscheiden über sie.",
        "label_policy": "Wie wir KI einsetzen",
    },
}

LABELS: Final[Mapping[Language, Mapping[tuple[str, WriteKind], str]]] = {
    Language.EN: {
        ("pages", WriteKind.CREATED): "The first draft of this page was written by AI.",
        ("pages", WriteKind.UPDATED): "The title of this page or its description was changed by AI.",
        ("content_elements", WriteKind.CREATED): "The first draft of a passage was written by AI.",
        ("content_elements", WriteKind.UPDATED): "A passage was changed or moved by AI.",
        ("files", WriteKind.CREATED): "A picture was added by AI.",
        ("files", WriteKind.UPDATED): "The text that describes a picture was written by AI.",
        ("file_references", WriteKind.CREATED): "A picture was chosen by AI.",
        ("file_references", WriteKind.UPDATED): "The text that describes a picture was written by AI.",
    },
    Language.DE: {
        ("pages", WriteKind.CREATED): "Der erste Entwurf dieser Seite stammt von einer KI.",
        ("pages", WriteKind.UPDATED): "Den Titel dieser Seite oder ihre Beschreibung hat eine KI geändert.",
        ("content_elements", WriteKind.CREATED): "Der erste Entwurf eines Abschnitts stammt von einer KI.",
        ("content_elements", WriteKind.UPDATED): "Einen Abschnitt hat eine KI geändert oder verschoben.",
        ("files", WriteKind.CREATED): "Ein Bild hat eine KI hinzugefügt.",
        ("files", WriteKind.UPDATED): "Die Beschreibung eines Bildes stammt von einer KI.",
        ("file_references", WriteKind.CREATED): "Ein Bild hat eine KI ausgewählt.",
        ("file_references", WriteKind.UPDATED): "Die Beschreibung eines Bildes stammt von einer KI.",
    },
}
"""What a label says of a record, by its table and what happened to it."""
