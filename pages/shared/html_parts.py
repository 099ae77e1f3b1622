"""Cards, notes and tables of the estimate pages."""

from __future__ import annotations

from pages.shared.html import Html, fill, join


def card(title: str, body: Html) -> Html:
    """A card with a heading."""
    return fill('<section class="tbt-card tbt-costs-text"><h2>{title}</h2>{body}</section>', title=title, body=body)


def note(text: str) -> Html:
    """A quiet sentence."""
    return fill('<p class="tbt-note">{text}</p>', text=text)


def row(*cells: object) -> Html:
    """A row of a table; cells that are Html are taken as they are."""
    return fill("<tr>{cells}</tr>", cells=join(fill("<td>{cell}</td>", cell=cell) for cell in cells))


def table(heads: list[str], rows: list[Html]) -> Html:
    """A table that scrolls in itself where the screen is narrow."""
    head = join(fill('<th scope="col">{text}</th>', text=text) for text in heads)
    return fill(
        '<div class="tbt-scroll" tabindex="0"><table class="tbt-facts"><thead><tr>{head}</tr></thead>'
        "<tbody>{rows}</tbody></table></div>",
        head=head,
        rows=join(rows),
    )
