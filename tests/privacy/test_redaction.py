"""Redaction finds what has a form, whatever is around it, in linear time; and it is no anonymisation."""

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byline import ModelAnswer, ModelCall, PrivacyLevel
from byline.privacy import MAX_REDACTED, redact
from tests.host import ALICE, Host

PERSONAL = {
    "an address": "night.desk+shop@mail.example.org",
    "an address with umlauts": "jürgen@bücher.example",
    "an address at a bare host": "root@localhost",
    "a telephone number": "+49 (0)228 123 456-78",
    "a telephone number with slashes": "0228/1234567",
    "a telephone number with en dashes": "555\u2013867\u20135309",
    "a card": "4111 1111 1111 1111",
    "a card in one": "4111111111111111",
    "an account": "DE89 3704 0044 0532 0130 00",
    "an account in one": "de89370400440532013000",
    "a French account": "FR14 2004 1010 0505 0001 3M02 606",
    "a day of birth": "1984-03-17",
    "a machine": "192.168.100.201",
    "a key": "sk-proj-Zx81kd02ksaAAd",
    "a token of GitHub": "ghp_16C7e42F292c6912E7",
    "a key of AWS": "AKIAIOSFODNN7EXAMPLE",
    "a JSON web token": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6Ikpva",
    "a hash": "9f86d081884c7d659a2feaa0c55ad015",
}
NAMED = {
    "password": ("password: {}", "hunter2"),
    "JSON": ('{{"password": "{}"}}', "hunter2"),
    "environment": ("OPENAI_API_KEY={}", "abcd"),
    "query": ("https://example.org/?token={}&page=2", "short"),
    "header": ("Authorization: Bearer {}", "abc.def"),
    "bearer": ("sent with bearer {} today", "abcdefgh"),
    "URL": ("postgresql://{}@db.example/site", "site:hunter2"),
    "words": ('password: "correct {} staple", 42', "horse"),
    "a quote in it": ('{{"password": "pa\\"{}"}}', "hunter2"),
    "an apostrophe in it": ('{{"password": "it\'s {}"}}', "hunter2"),
    "a backslash in it": ("PASSWORD=ab\\{}", "hunter2"),
    "a name in one word": ('{{"accessToken": "{}"}}', "hunter2"),
}
ESCAPED = {
    "an address with umlauts": "jürgen@bücher.example",
    "a telephone number with blanks": "030\u00a0123\u00a0456\u00a078",
    "a password": '{"password": "hunter2 und käse"}',
    "a token": "{'token': 'käse'}",
    "a key in a line of its own": "This is it:\nsk-proj-Zx81kd02ks\n",
    "a French account": "Konto\tFR14 2004 1010 0505 0001 3M02 606",
}
"""What JSON writes in another way, and what of it is not to be left."""


@pytest.mark.promise("P23")
@pytest.mark.parametrize("what", PERSONAL)
@pytest.mark.parametrize("around", ["{}", "Write to {}, please.", '{{"to": "{}"}}', "({})", "\n{}\n", "<{}>"])
def test_what_has_the_form_of_personal_data_goes(what: str, around: str) -> None:
    text = redact(around.format(PERSONAL[what]))
    assert PERSONAL[what] not in text
    pieces = [piece for piece in PERSONAL[what].replace("@", " ").split() if len(piece) > 3]
    assert [piece for piece in pieces if piece in text] == []
    before, after = around.format("\0").split("\0")
    assert text.startswith(before)
    assert text.endswith(after)


@pytest.mark.promise("P23")
@pytest.mark.parametrize("where", NAMED)
def test_what_stands_behind_the_name_of_a_secret_goes(where: str) -> None:
    around, secret = NAMED[where]
    text = redact(around.format(secret))
    assert secret not in text
    assert "[secret]" in text or "[credentials]" in text


@pytest.mark.promise("P23")
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("ensure_ascii", [False, True])
@pytest.mark.parametrize("what", ESCAPED)
def test_it_goes_also_where_json_escapes_it(what: str, ensure_ascii: bool, depth: int) -> None:
    """Arguments are JSON, and what a tool is given or returns is often JSON within it."""
    text = ESCAPED[what]
    for _ in range(depth):
        text = json.dumps({"text": text, "page_id": 42}, ensure_ascii=ensure_ascii)
    kept = redact(text)
    for piece in ("rgen", "cher", "030", "123", "456", "hunter2", "und", "k\u00e4se", "u00e4se", "Zx81", "FR14", "M02"):
        assert piece not in kept
    assert "page_id" in kept
    assert "42" in kept


@pytest.mark.promise("P23")
async def test_what_a_model_escaped_is_not_kept_for_that(host: Host) -> None:
    asked = ModelCall("set_description", '{"page_id": 42, "description": "Ask j\\u00fcrgen@b\\u00fccher.example"}')
    async with host.runtime([ModelAnswer("So.", calls=(asked,)), "Done."], privacy=PrivacyLevel.REDACTED) as runtime:
        run = await runtime.run("editor", "Describe page 42.", actor=ALICE)
        told = [step.detail or "" for step in await runtime.list_steps(run.run_id)]
    assert told[0] == 'So.\nset_description {"page_id": 42, "description": "Ask [email]"}'
    assert not any("cher.example" in detail for detail in told)


def test_words_stay() -> None:
    """What the docs say that redaction is not: whoever needs names gone takes another level."""
    said = (
        'The night desk of Bonn is ill. 3 pages, 12.50 euros, page 42; set_description {"page_id": 42, "a": [1, 2, 3]}'
    )
    assert redact(said) == said


@given(st.text(alphabet="0123456789a@. -+:/=", max_size=300))
def test_no_long_number_and_no_address_is_left(text: str) -> None:
    assert re.search(r"\d{7}|\w@\w", redact(text)) is None


@pytest.mark.promise("P23")
@pytest.mark.parametrize(
    "unit",
    ["a", "1", "a.", "1-", "1 ", "a@", "@", "://", "a1", "A1 ", "DE12 ", "DE12 3456 ", "password:", "bearer ",
     "bearer a", "+", "(", "=", "a=", "-", "sk-", "://a:b", "é", "٣", "\t", '"secret" :', "aaaa1111 ", "1/1 ",
     "\\", "\\u", "\\u00fc", "password\\", "password=\"\\", "token:'\\\"", "\\n1", "secret:bearer "],
)  # fmt: skip
def test_no_text_takes_long(unit: str) -> None:
    text = (unit * MAX_REDACTED)[:MAX_REDACTED]
    started = time.process_time()
    redact(text)
    spent = time.process_time() - started
    assert spent < 2.0, f"{unit!r}: {spent:.2f} s"


@pytest.mark.promise("P23")
def test_a_long_text_is_cut_and_not_in_the_middle_of_a_word() -> None:
    text = "word " * (MAX_REDACTED // 5 - 1) + "night.desk@example.org and more"
    kept = redact(text)
    assert kept.endswith("word\n[cut]")
    assert len(kept) <= MAX_REDACTED + 6
