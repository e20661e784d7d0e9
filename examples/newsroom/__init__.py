"""The newsroom: a newspaper's small site in two languages, an agent that writes on it, and people who decide.

What to copy: `tools/`, `authority.py`, and `application.py`, which puts them together. `models.py` and `site.py` stand
for the system that you have already. The rest tells the story in a terminal.
"""
