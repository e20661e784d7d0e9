"""A model by its name: what is checked when, what is imported when, and what is said where something is missing."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import cast

import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from byline import (
    Agent,
    ChatModel,
    ConfigurationError,
    ModelError,
    ModelRequest,
    ModelUnreachable,
    PydanticAiModel,
    RunStatus,
    UserMessage,
)
from byline.models.adapter.asking import Asking
from examples.model_server.server import ModelServer
from tests.providers.conftest import KEY
from tests.providers.stage import ALICE, Turn, playing, runtime

ROOT = Path(__file__).resolve().parents[2]
QUESTION = ModelRequest("", (UserMessage("Well?"),), ())


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["", "gpt-5", "openai:", "openai: ", ":gpt-5", "openai:gpt\n5", "openai:" + "x" * 300])
def test_a_name_without_its_form_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigurationError, match="provider:model"):
        Agent(name="editor", model=name)


def test_an_unknown_provider_is_refused_at_once() -> None:
    with pytest.raises(
        ConfigurationError, match=r"no provider 'nobody': there are anthropic, bedrock.*PydanticAiModel"
    ):
        Agent(name="editor", model="nobody:model")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="PydanticAiModel"):
        Agent(name="editor", model=cast("ChatModel", object()))
    with pytest.raises(ConfigurationError, match="not a object"):
        PydanticAiModel(cast("str", object()))


def test_a_named_model_imports_no_provider_until_it_is_asked() -> None:
    loaded = python("""
        import sys
        from byline import Agent, AgentRuntime, PydanticAiModel
        from byline.testing import memory_store
        names = ("openai", "anthropic", "google", "mistral", "bedrock", "ollama")
        agents = [Agent(name=name, model=f"{name}:x") for name in names]
        AgentRuntime(store=memory_store(), agents=agents)
        PydanticAiModel("openai:x", settings={"temperature": 0.5})
        providers = {"pydantic_ai", "openai", "anthropic", "google.genai", "mistralai", "boto3", "httpx", "httpx2"}
        print(sorted(providers & set(sys.modules)))
    """)
    assert loaded == "[]"


def test_a_missing_extra_is_named_by_the_run_that_needs_it() -> None:
    """At the first answer: a process that only decides needs no provider."""
    said = python("""
        import asyncio, sys
        sys.modules["anthropic"] = None  # as if it were not installed
        from byline import Agent, AgentRuntime, AiActorContext
        from byline.testing import memory_store

        async def main():
            agent = Agent(name="editor", model="anthropic:claude-opus-4-8")
            async with AgentRuntime(store=memory_store(), agents=[agent]) as runtime:
                run = await runtime.run("editor", "Go.", actor=AiActorContext.user("7"))
                failed = (await runtime.list_steps(run.run_id))[-2]
                print(run.status, failed.payload["failed"], failed.detail)

        asyncio.run(main())
    """)
    assert said == (
        "dead_letter ConfigurationError model 'anthropic:claude-opus-4-8' needs the extra byline[anthropic]"
    )


@pytest.mark.parametrize(
    "name, variable",
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-opus-4-8", "ANTHROPIC_API_KEY"),
        ("google:gemini-3-pro", "GOOGLE_API_KEY"),
        ("mistral:mistral-large-latest", "MISTRAL_API_KEY"),
        ("ollama:llama4", "OLLAMA_BASE_URL"),
    ],
)
async def test_a_missing_key_is_named(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name_of_one in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name_of_one, raising=False)
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match=variable):
        await PydanticAiModel(name).answer(QUESTION)


@pytest.mark.parametrize(
    "name",
    [
        "google:gemini-3-pro",
        "google-cloud:gemini-3-pro",
        "mistral:mistral-large-latest",
        "bedrock:anthropic.claude-sonnet-4-20250514-v1:0",
        "ollama:llama4",
        "openai:gpt-5",
        "openai-chat:gpt-5",
        "openai-responses:gpt-5",
        "anthropic:claude-opus-4-8",
    ],
)
async def test_each_provider_is_made_ready_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "none")
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:1/v1")
    asking = Asking.of(name, {"temperature": 0.1})
    assert asking.model.model_name == name.partition(":")[2]
    assert asking.settings.get("temperature") == 0.1
    async with asking.model:
        pass  # and its client is closed: a warning would be an error here


async def test_ollama_speaks_chat_completions(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", str(server.address) + "/v1")
    server.respond = playing([Turn("Hello.")])
    assert (await PydanticAiModel("ollama:llama4").answer(QUESTION)).text == "Hello."
    assert server.requests[0].body["model"] == "llama4"


# -- settings, and models of the host's own


async def test_settings_reach_the_provider(server: ModelServer) -> None:
    server.respond = playing([Turn("1"), Turn("2"), Turn("3")])
    await PydanticAiModel("openai-chat:local", settings={"temperature": 0.25, "max_tokens": 99}).answer(QUESTION)
    body = server.requests[-1].body
    assert (body["temperature"], body["max_completion_tokens"]) == (0.25, 99)
    await PydanticAiModel("openai:gpt-5", settings={"thinking": "low"}).answer(QUESTION)
    assert server.requests[-1].body["reasoning"]["effort"] == "low"
    from pydantic_ai.models.anthropic import AnthropicModelSettings

    own = AnthropicModelSettings(anthropic_thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=4000)
    await PydanticAiModel("anthropic:local", settings=own).answer(QUESTION)
    body = server.requests[-1].body
    assert (body["thinking"], body["max_tokens"]) == ({"type": "enabled", "budget_tokens": 2000}, 4000)


async def test_a_model_of_the_hosts_own(server: ModelServer, tmp_path: Path) -> None:
    own: Model = OpenAIChatModel("own", provider=OpenAIProvider(base_url=f"{server.address}/v1", api_key="own-key"))
    server.respond = playing([Turn(calls=[("a", "read_page", '{"page_id": 1}')]), Turn("Read.")])
    model = PydanticAiModel(own)
    assert repr(model) == "PydanticAiModel(<OpenAIChatModel>)"
    async with runtime(tmp_path / "runs.db", model) as opened:
        assert (await opened.run("editor", "Read.", actor=ALICE)).output == "Read."
    assert server.requests[0].headers["authorization"] == "Bearer own-key"


async def test_what_a_model_of_the_hosts_own_raises(server: ModelServer) -> None:
    class Broken(OpenAIChatModel):
        async def request(self, *_: object) -> object:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - it is broken
            raise KeyError("marker-Wq3")

    own = Broken("own", provider=OpenAIProvider(base_url=f"{server.address}/v1", api_key="own-key"))
    with pytest.raises(ModelError) as caught:
        await PydanticAiModel(own).answer(QUESTION)
    assert (type(caught.value), caught.value.retryable) == (ModelError, False)
    assert "KeyError" in str(caught.value)
    assert "marker-Wq3" not in str(caught.value)


# -- event loops


def test_one_model_serves_one_loop_after_another(server: ModelServer, tmp_path: Path) -> None:
    server.respond = playing([Turn("One."), Turn("Two."), Turn("Three.")])
    opened_twice = runtime(tmp_path / "runs.db", PydanticAiModel("openai-chat:local"))
    for words in ("One.", "Two.", "Three."):
        with opened_twice.sync as opened:
            run = opened.run("editor", "Go on.", actor=ALICE)
            assert (run.status, run.output) == (RunStatus.COMPLETED, words)


def test_a_model_of_the_hosts_own_serves_one_loop_after_another(server: ModelServer, tmp_path: Path) -> None:
    own = OpenAIChatModel("own", provider=OpenAIProvider(base_url=f"{server.address}/v1", api_key="own-key"))
    server.respond = playing([Turn("One."), Turn("Two.")])
    opened_twice = runtime(tmp_path / "runs.db", PydanticAiModel(own))
    for words in ("One.", "Two."):
        with opened_twice.sync as opened:
            assert opened.run("editor", "Go on.", actor=ALICE).output == words


async def test_nobody_listens_at_another_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:1/v1")
    with pytest.raises(ModelUnreachable):
        await PydanticAiModel("ollama:llama4").answer(QUESTION)
