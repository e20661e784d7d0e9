"""The model, played from a script, so that the demo needs no key and no network."""

from byline import ModelRequest, ToolMessage
from byline.testing import ScriptedModel, call

PROMPT = (
    "Page 42 has a poor description. Please write a better one, and add a draft that says"
    " when people can bring their seeds back."
)
INSTRUCTIONS = "You help the editors of a library's website. Plain words, no praise. Read a page before you change it."

DESCRIPTION = (
    "Take seeds home for free, grow them, and bring some back in autumn: some two hundred kinds of vegetables and"
    " flowers, in the drawers beside the stairs."
)
HEADING = "Bringing seeds back"
BODY = (
    "From the middle of September to the end of November there is a box on the desk by the stairs. Put your bags in it,"
    " each with the name of the plant and the year. A handful is enough for three gardens."
)


def scripted_model() -> ScriptedModel:
    """Make the model: it reads, sets the description, adds a draft, and says what became of both."""
    return ScriptedModel(
        [
            [call("read_page", page_id=42)],
            [call("update_page_metadata", page_id=42, description=DESCRIPTION)],
            [call("add_content_element", page_id=42, heading=HEADING, body=BODY)],
            closing_words,
        ]
    )


def closing_words(request: ModelRequest) -> str:
    """Say what was done, by the results of the calls: an approver may have denied one."""
    done = {m.tool: not m.is_error for m in request.messages if isinstance(m, ToolMessage)}
    first = "Page 42 has a new description." if done["update_page_metadata"] else "The description stays as it was."
    second = "The draft is on the page." if done["add_content_element"] else "I added no draft."
    return f"{first} {second}"
