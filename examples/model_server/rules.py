"""What the local model says: the part that was written for the site whose tools are on offer."""

from byline import AssistantMessage, ModelAnswer, ModelRequest
from byline.testing import ScriptedModel
from examples.newsroom.model import scripted_model as newsroom
from examples.quickstart.model import scripted_model as quickstart

SAYS_NOTHING = "I am a few rules on your own machine, and have no part in a story with these tools."


async def by_the_script(request: ModelRequest) -> ModelAnswer:
    """Say the next line of the newsroom's part, or of the quick start's."""
    called = {
        call.name for said in request.messages if isinstance(said, AssistantMessage) for call in said.answer.calls
    }
    tools = called | {tool.name for tool in request.tools}
    part: ScriptedModel
    if {"search", "read_page"} <= tools:
        part = newsroom()
    elif "read_page" in tools:
        part = quickstart()
    else:
        return ModelAnswer(SAYS_NOTHING)
    return await part.answer(request)
