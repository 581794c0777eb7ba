"""A hook of mkdocs: formulas of the pages become MathML, which browsers show by themselves, without a script."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
"""As `pymdownx.arithmatex` leaves them: `\\(` within a line, `\\[` as a block."""


def on_page_content(content: str, **_: object) -> str:
    """Return a page's HTML with every formula as MathML.

    Args:
        content: HTML of the page's Markdown.
    """
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    return convert(html.unescape(found[2]), display="inline" if found[1] == "span" else "block")
