"""How much of a run its trace keeps: four levels, the strictest wins, and what redaction does (P23).

Whatever the level, content is sealed at rest, what a run needs in order to go on is deleted when it settles,
and the facts of its writes, who it acted for and who decided what stay until they are purged.
"""

import re
from enum import StrEnum
from typing import Final


class PrivacyLevel(StrEnum):
    """How much of a run its trace keeps. The strictest of runtime and agent wins."""

    NONE = "none"
    """What the promises need: which steps there were, how calls ended, who decided. No tool's name, no count, no time
    that a model or a tool took, no content at any time."""
    METADATA = "metadata"
    """The default: names, outcomes, counts and durations. Errors and refusals in words only until the run settles."""
    REDACTED = "redacted"
    """Content too (answers, arguments, previews, results, errors), until it is purged, redacted as it is written."""
    FULL = "full"
    """Content as it was, until it is purged."""

    @property
    def keeps_content(self) -> bool:
        """Whether content in the trace outlives the run."""
        return self in (PrivacyLevel.REDACTED, PrivacyLevel.FULL)


def strictest(first: PrivacyLevel, *others: PrivacyLevel) -> PrivacyLevel:
    """Return the level that keeps least."""
    return min(first, *others, key=_STRICTEST_FIRST.index) if others else first


_STRICTEST_FIRST: Final = (PrivacyLevel.NONE, PrivacyLevel.METADATA, PrivacyLevel.REDACTED, PrivacyLevel.FULL)

MAX_REDACTED: Final = 100_000
"""Most characters of one text that redaction reads; what is longer is cut."""

_NAMES_OF_SECRETS: Final = (
    r"password|passwd|passphrase|pwd|secret|token|api[ _-]?key|access[ _-]?key|authori[sz]ation|cookie"
)
_NAMED: Final = rf"(?:{_NAMES_OF_SECRETS})(?:\\{{0,15}}+[\"'])?\s{{0,4}}+[:=]\s{{0,4}}+"


def _begins(kind: str) -> str:
    r"""Where nothing of its kind comes before it, or what does is an escape of JSON, such as `\n`."""
    return rf"(?:(?<!{kind})|(?<=\\[bfnrt]))"


_LETTER, _ALPHANUMERIC, _WORD = _begins("[a-z]"), _begins("[A-Za-z0-9]"), _begins(r"[\w-]")
# Each begins where nothing of its kind comes before it, takes all it can and gives nothing back (`++`): so each reads
# a text once, however it was made.
_PATTERNS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        # user:password@ in a URL, whose slashes JSON may escape.
        (r"(?<=://)[^\s/?#@]{1,512}+@", "[credentials]@"),
        (r"(?<=:\\/\\/)[^\s/?#@]{1,512}+@", "[credentials]@"),
        # "password": "…", up to the same quote; also in a text that is JSON in JSON, whose quotes are escaped.
        (
            rf"(?i)({_NAMED}(?P<quote>\\{{0,15}}+[\"'])(?:(?:bearer|basic)\s++)?)"
            r"(?:[^\\\"'\n]++|(?!(?P=quote))\\*+[\"']|\\++(?=[^\\\"'\n]))++",
            r"\1[secret]",
        ),
        # API_TOKEN=…, Authorization: Bearer …
        (rf"(?i)({_NAMED}(?:(?:bearer|basic)\s++)?)(?!\\*+[\"'])[^\s\"',;&]++", r"\1[secret]"),
        (rf"(?i){_LETTER}(bearer|basic) ++[a-z0-9._~+/=-]{{8,}}+", r"\1 [secret]"),
        (r"(?<![\w.%+'-])[\w.%+'-]++@[\w-]++(?:\.[\w-]++)*+", "[email]"),
        # An IBAN: two letters, two check digits, then in groups of four, or in one.
        (
            rf"{_ALPHANUMERIC}[A-Z]{{2}}[0-9]{{2}}(?: [A-Z0-9]{{4}}){{2,7}}+(?: [A-Z0-9]{{1,3}}(?![A-Za-z0-9]))?+",
            "[iban]",
        ),
        (rf"{_ALPHANUMERIC}[A-Za-z]{{2}}[0-9]{{2}}[A-Za-z0-9]{{11,30}}+(?![A-Za-z0-9])", "[iban]"),
        # Keys of known makes, and whatever else is long and has a digit in it.
        (rf"{_WORD}(?:sk|pk|rk|gh[opsu]|github_pat|glpat|xox[abprs]|AKIA|ASIA|AIza)[\w-]{{8,}}+", "[secret]"),
        (r"(?<![A-Za-z0-9_+/=~-])(?=[A-Za-z_+/=~-]{0,512}+[0-9])[A-Za-z0-9_+/=~-]{24,}+", "[secret]"),
        # Numbers of telephones, cards and accounts, dates, addresses of machines: seven digits or more.
        (r"(?<!\d)\+?+\d(?:[^\S\n]{0,2}+[-.\u2010-\u2013/()]{0,2}+[^\S\n]{0,2}+\d){6,}+", "[number]"),
    )
)
_ESCAPED: Final = re.compile(r"(?<!\\)\\++u(?![Dd][89A-Fa-f])([0-9A-Fa-f]{4})")
"""A character as JSON may write it; not half of one."""


def redact(text: str) -> str:
    """Replace what has the form of personal data or of a secret, in time linear in the length of the text.

    Replaced: e-mail addresses, IBANs, runs of seven digits or more (telephone, card and account numbers, dates), keys
    and tokens, passwords behind their name, credentials in URLs; also where JSON escapes them, and there a character
    is written as itself. Of a text longer than `MAX_REDACTED` characters the rest is cut.

    This is no anonymisation. Names, places, what somebody is ill with, and whatever else is said in words passes; so do
    short numbers, and what is written in a way that the forms above do not foresee. What must not be kept is not to be
    kept: that is the level `metadata` or `none`.
    """
    kept = text if len(text) <= MAX_REDACTED else (text[:MAX_REDACTED].rsplit(maxsplit=1) or [""])[0]
    kept = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)), kept)
    for pattern, name in _PATTERNS:
        kept = pattern.sub(name, kept)
    return kept if len(text) <= MAX_REDACTED else f"{kept}\n[cut]"
