"""Who may do what: the site's own accounts and rights, as Byline asks for them."""

from byline import AiActorContext, Grant, ProposedCall
from examples.quickstart.site import Site


class SiteAuthority:
    """Asked when somebody decides, and again before a released call runs: a right that is gone by then is gone."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def load(self, actor_id: str, /) -> AiActorContext | None:
        """Return somebody as the site knows them now; None if the account is gone or was closed."""
        person = self._site.person(actor_id)
        if person is None:
            return None
        grants = {Grant.APPROVE, Grant.RECONCILE} if person.may_approve else set[Grant]()
        return AiActorContext.user(person.id, grants=grants)

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        """Whether the site lets them do this with this page: asked for who started the run, and for who approves."""
        page_id = call.arguments.get("page_id")
        return isinstance(page_id, int) and self._site.may(actor.id, page_id, edit=call.writes)
