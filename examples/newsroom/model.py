"""The prompt, and the model played from a script, so that the demo needs no key and no network.

The script finds its records as a model would: it reads the ids and the versions in the answers of the reading tools.
"""

import re

from pydantic import JsonValue

from byline import ModelCall, ModelRequest, ToolMessage
from byline.testing import ScriptedModel, call

PROMPT = (
    "The page about the museum in the boathouse has no description, and no German version. Please write a description,"
    " and draft the title and description of the German page. And the picture on the film club's page has no"
    " alternative text: it shows the old projector with its two reels, on a table in the gymnasium."
)
INSTRUCTIONS = (
    "You help the editors of the Sollwick Courier, a small town's newspaper, with its website. Write plainly, without"
    " praise. Search for a record and read it before you change it: every change names the version that you read. Make"
    " one change at a time. People decide on each of them; when one is denied, do not try it again, go on with the"
    " rest. In the end say in one or two sentences what was done and what was not."
)

DESCRIPTION = "A lifeboat to walk under, a wall of telegrams, and a button that floods the town. Admission is free."
ALTERNATIVE_TEXT = "An old film projector with two reels on a table in a gymnasium"
TITLE_DE = "Das Museum im Bootshaus"
DESCRIPTION_DE = (
    "Ein Rettungsboot, unter dem man hindurchgeht, eine Wand voller Telegramme und ein Knopf, der die Stadt überflutet."
    " Der Eintritt ist frei."
)

_PAGE = re.compile(r"pages:(\d+) \(en\), version (\d+): The museum")
_FILE = re.compile(r"files:(\d+) “projector\S*”, version (\d+)")


def scripted_model() -> ScriptedModel:
    """Make the model: it looks, sets a description and an alternative text, drafts a translation, and says so."""
    return ScriptedModel(
        [
            [call("search", words="museum in the boathouse"), call("search", words="projector")],
            _read,
            _describe,
            _set_text,
            _translate,
            closing_words,
        ]
    )


def _read(request: ModelRequest) -> list[ModelCall]:
    page_id, _ = _found(_PAGE, request)
    return [call("read_page", page_id=page_id)]


def _describe(request: ModelRequest) -> list[ModelCall]:
    page_id, version = _found(_PAGE, request)
    return [call("set_page_metadata", page_id=page_id, expected_version=version, description=DESCRIPTION)]


def _set_text(request: ModelRequest) -> list[ModelCall]:
    file_id, version = _found(_FILE, request)
    text = ALTERNATIVE_TEXT
    return [call("set_alternative_text", file_id=file_id, expected_version=version, alternative_text=text)]


def _translate(request: ModelRequest) -> list[ModelCall]:
    page_id, version = _found(_PAGE, request)
    if _landed(request, "set_page_metadata"):
        version += 1  # its own change; the result said so
    arguments: dict[str, JsonValue] = {"page_id": page_id, "expected_version": version, "language": "de"}
    return [call("create_translation_draft", **arguments, title=TITLE_DE, description=DESCRIPTION_DE)]


def closing_words(request: ModelRequest) -> str:
    """Say what was done, by the results of the calls: an approver may have denied one."""
    first = "has a description" if _landed(request, "set_page_metadata") else "has no new description"
    second = "has an alternative text" if _landed(request, "set_alternative_text") else "has none still"
    third = "is a hidden draft" if _landed(request, "create_translation_draft") else "was not made"
    return f"The museum's page {first}, and the film club's picture {second}. The German page {third}."


def _found(pattern: re.Pattern[str], request: ModelRequest) -> tuple[int, int]:
    """Find the first id and version in what the tools answered."""
    answers = "\n".join(m.text for m in request.messages if isinstance(m, ToolMessage))
    found = pattern.search(answers)
    assert found is not None, "the site is not as the script was written for"
    return int(found[1]), int(found[2])


def _landed(request: ModelRequest, tool: str) -> bool:
    return any(m.tool == tool and not m.is_error for m in request.messages if isinstance(m, ToolMessage))
