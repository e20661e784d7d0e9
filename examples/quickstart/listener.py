"""A transparency label: it tells visitors, and their machines, that an AI had a part in what they read.

A recipe to begin with, for duties such as those of Article 50 of the EU AI Act; no legal advice. Byline ships no
listener: what an announcement is good for is the host's to say.
"""

from byline import AfterAiRecordWrittenEvent, WriteKind
from examples.quickstart.site import Site

# The words are for people. The source is for machines: terms of the IPTC's vocabulary of digital source types.
WORDS = {
    WriteKind.CREATED: "This text was drafted with the help of AI.",
    WriteKind.UPDATED: "This page was changed with the help of AI.",
}
SOURCES = {
    WriteKind.CREATED: "trainedAlgorithmicMedia",
    WriteKind.UPDATED: "compositeWithTrainedAlgorithmicMedia",
}
LABELLED = ("pages", "content_elements")


class VisitorsMark:
    """Marks each record that an AI wrote.

    It is told at least once for each write, so it may be told twice: the key of a mark is (record, run), and one
    that is there stays as it is. It is told after the commit, so it finds the record on a connection of its own.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
        """Mark the record that the event names, if it is one that visitors see and is still there."""
        record, kind = event.record, event.kind
        if record.table not in LABELLED:
            return
        with self._site.transaction() as db:
            found = db.execute(f"SELECT 1 FROM {record.table} WHERE id = ?", (record.uid,))  # noqa: S608 - one of LABELLED
            if found.fetchone() is not None:
                db.execute(
                    "INSERT INTO ai_marks (record, run, words, source) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (str(record), str(event.correlation_id), WORDS[kind], SOURCES[kind]),
                )
