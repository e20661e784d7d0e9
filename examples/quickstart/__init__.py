"""The quick start: a library's small website, an agent that writes on it, and a person who decides.

What to copy: `tools.py`, `authority.py`, `listener.py`, and `application.py`, which puts them together.
`site.py` stands for the system that you have already. The rest tells the story in a terminal.
"""
