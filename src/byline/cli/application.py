"""The application that a command works on: found by name, as uvicorn and Celery find theirs."""

import importlib
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import typer

from byline.actors import AiActorContext
from byline.errors import BylineError, ConfigurationError
from byline.runtime.runtime import AgentRuntime
from byline.runtime.sync import SyncRuntime

ENVIRONMENT_VARIABLE = "BYLINE_APP"
_EXAMPLE = "module:attribute, as in mysite.agents:runtime"


class ApplicationError(ConfigurationError):
    """The application cannot be loaded."""


class ApplicationFailed(ApplicationError):
    """The application's own code raised while it was loaded: its traceback is shown."""


@dataclass(frozen=True, slots=True)
class Application:
    """A loaded application.

    Attributes:
        name: as it was given, `module:attribute`.
        module: the module.
        runtime: its runtime, not yet open.
    """

    name: str
    module: ModuleType
    runtime: AgentRuntime

    def actor(self) -> AiActorContext:
        """Ask the application who is at this command line. There is no option for it (P14).

        Raises:
            ApplicationError: it does not say, or says something else.
            ApplicationFailed: its `cli_actor` raised.
        """
        ask: object = getattr(self.module, "cli_actor", None)
        if not callable(ask):
            raise ApplicationError(
                f"{self.module.__name__} does not say who is at this command line: "
                "define `def cli_actor() -> AiActorContext:` in it"
            )
        try:
            actor: object = ask()
        except BylineError:
            raise
        except Exception as error:
            raise ApplicationFailed(f"cli_actor() of {self.module.__name__} failed") from error
        if not isinstance(actor, AiActorContext):
            raise ApplicationError(
                f"cli_actor() of {self.module.__name__} returns an AiActorContext, not {type(actor).__name__}"
            )
        return actor

    @contextmanager
    def opened(self) -> Generator[SyncRuntime]:
        """Open the runtime for one command. It takes up nothing by itself: that is what `byline recover` is for."""
        self.runtime.disable_recovery()
        with self.runtime.sync as runtime:
            yield runtime


def load(context: typer.Context) -> Application:
    """Load the application that `--app` or `BYLINE_APP` names.

    Raises:
        ApplicationError: there is none, or it is no runtime. The message says what to do.
        ApplicationFailed: its own code raised.
    """
    name: object = context.find_root().obj
    if not isinstance(name, str) or not name:
        raise ApplicationError(f"name your application: --app {_EXAMPLE}, or the variable {ENVIRONMENT_VARIABLE}")
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise ApplicationError(f"--app {name!r} is not {_EXAMPLE}")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    module = _import(module_name)
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise ApplicationError(f"{module_name} has no {path!r}: name its runtime, or a function that makes one")
        found = getattr(found, part)
    return Application(name, module, _runtime(name, found))


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ApplicationError(f"{name!r} is no name of a module")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ApplicationError(
                f"there is no module {name!r} in {os.getcwd()} or where Python looks"  # noqa: PTH109
            ) from None
        raise ApplicationFailed(f"{name} cannot be imported") from error
    except BylineError:
        raise
    except Exception as error:
        raise ApplicationFailed(f"{name} cannot be imported") from error


def _runtime(name: str, found: object) -> AgentRuntime:
    if callable(found) and not isinstance(found, AgentRuntime):
        try:
            found = found()
        except BylineError:
            raise
        except Exception as error:
            raise ApplicationFailed(f"{name} could not be called") from error
    if not isinstance(found, AgentRuntime):
        raise ApplicationError(f"{name} is no AgentRuntime and no function that returns one: {type(found).__name__}")
    return found
