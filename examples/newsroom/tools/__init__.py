"""What an agent may do on the site: four tools that read, seven that write.

A tool that writes has five duties (docs/writing-tools.md):
1. It checks `context.actor`, and refuses with one sentence that does not tell whether the record exists.
2. It commits before it returns.
3. It names the record it wrote, and whether that was created or updated.
4. It raises `ToolError` if, and only if, it wrote nothing.
5. It touches one record.

All seven do it in one way: `writing.py`. Nothing here publishes: what an agent creates is hidden until a person shows
it. (A file that is attached to a published element is seen at once: it is that element which is published.)
"""

from byline import Tool
from examples.newsroom.tools.elements import attach_file, create_content_element_draft, move_content_element
from examples.newsroom.tools.files import set_alternative_text
from examples.newsroom.tools.pages import create_page_draft, create_translation_draft, set_page_metadata
from examples.newsroom.tools.reading import read_history, read_page, read_page_tree, search

READING: tuple[Tool, ...] = (read_page_tree, read_page, search, read_history)
WRITING: tuple[Tool, ...] = (
    set_page_metadata,
    set_alternative_text,
    move_content_element,
    create_page_draft,
    create_content_element_draft,
    create_translation_draft,
    attach_file,
)
