"""The command line: `byline --app module:attribute COMMAND`, or `python -m byline`.

How to add a command
--------------------
1. Write it as a function in a file of its own, `src/byline/cli/purge.py`. Its parameters are typer's, annotated; its
   docstring is its help, and its first line stands in the list of commands.

       def purge(
           context: typer.Context,
           older_than: Annotated[str, typer.Option(metavar="AGE", help="Such as 30d.")],
           as_json: AsJson = False,
       ) -> None:
           \"\"\"Delete the content of old runs.\"\"\"
           with load(context).opened() as runtime:
               purged = runtime.purge(older_than=age(older_than))
           if as_json:
               print_json({"runs": purged.runs})
           else:
               Screen().say(f"{purged.runs} runs")

2. Register it in `app.py`: `add(purge.purge, "purge")`. A group of commands (`byline keys add`) is a `typer.Typer` of
   its own: `keys = typer.Typer(help=…, no_args_is_help=True, rich_markup_mode=None)`, `add(keys_commands.add, "add",
   keys)` for each, `app.add_typer(keys, name="keys")`.

3. Keep to the house's ways:

   - `load(context)` (`application.py`) gives the application; `.opened()` opens its runtime as a `SyncRuntime` that
     recovers nothing by itself; `.runtime.store` is the store; `.actor()` is who is at this command line. Ask for the
     actor only in a command that acts for somebody, and take no option for it.
   - Commands are synchronous, so that Ctrl-C ends a question, and a write in flight ends well.
   - Refuse by raising a `BylineError`; `UsageRefused` (`failing.py`) is for options that do not go together. `ending`
     prints it as one line and returns its exit code. End with another code by `raise typer.Exit(ExitCode.ATTENTION)`.
   - People read `Screen` (`screen.py`): lines, fields, tables. It makes all text visible, so that nothing stored steers
     the terminal; nothing else writes to stdout. Programs read `print_json` (`as_json.py`): one object, or one a line
     for a list, and nothing else on stdout.
   - Progress goes to stderr, and only where that is a terminal (`progress.py`).
   - `byline --help` stays quick: import SQLAlchemy, alembic, cryptography and the like inside the command. A test says
     so. Byline's own modules above the store may be imported at the top.
"""
