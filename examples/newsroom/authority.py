"""Who may do what: the site's own accounts and rights, as Byline asks for them."""

from pydantic import JsonValue

from byline import AiActorContext, Grant, ProposedCall, ToolError
from examples.newsroom.models import ContentElement, File, Language, Page
from examples.newsroom.rights import person
from examples.newsroom.site import Site
from examples.newsroom.tools.desk import Desk


class NewsroomAuthority:
    """Asked when somebody decides, and again before a released call runs: a right that is gone by then is gone.

    It asks for the same rights on the same records as the tools do, of who started the run and of who approves. A tool
    that it does not know may read, and never write.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    def load(self, actor_id: str, /) -> AiActorContext | None:
        """Return somebody as the site knows them now; None if the account is gone or was closed."""
        with self._site.reading() as session:
            user = person(session, actor_id)
            if user is None:
                return None
            grants = {Grant.APPROVE, Grant.RECONCILE} if user.approves else set[Grant]()
            return AiActorContext.user(user.id, grants=grants)

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        """Whether the site lets them do this with these records."""
        with self._site.reading() as session:
            try:
                return _may(Desk(session, actor.id), call)
            except ToolError:  # so says the desk where they may not
                return False


def _may(desk: Desk, call: ProposedCall) -> bool:
    given = call.arguments
    match call.tool:
        case "set_page_metadata" | "create_content_element_draft":
            desk.to_edit(Page, _id(given["page_id"]))
        case "create_page_draft":
            desk.to_edit(Page, _id(given["parent_id"]))
        case "create_translation_draft":
            desk.to_translate(_id(given["page_id"]), Language(str(given["language"])))
        case "move_content_element":
            desk.to_edit(ContentElement, _id(given["element_id"]))
            desk.to_edit(Page, _id(given["page_id"]))
        case "attach_file":
            desk.to_edit(ContentElement, _id(given["element_id"]))
            desk.to_read(File, _id(given["file_id"]))
        case "set_alternative_text":
            desk.to_edit(File, _id(given["file_id"]))
        case _:
            return not call.writes
    return True


def _id(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value
