"""The skeleton of a page: one file that loads nothing, with a policy that forbids it to load."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from stormcast.pipeline.report.markup import Markup, join, tag
from stormcast.pipeline.report.run_files import HOLDS, UNSUPPORTED, VIOLATED
from stormcast.pipeline.report.wording import WORDS

_ICONS: Final = {
    HOLDS: "M3 12.5 9.5 19 21 5.5",
    VIOLATED: "M4.5 4.5 19.5 19.5M19.5 4.5 4.5 19.5",
    UNSUPPORTED: "M4 12H20",
}
_QUESTION: Final = "M6.5 8C6.5 1.5 17.5 1.5 17.5 8C17.5 12 12 11.5 12 15.5M12 20.4V20.6"


def page(title: str, header: Markup, body: Markup, data: object = None) -> str:
    """Return the whole file. `data` is for the script; without data there is no script."""
    script = _resource("page.js") if data is not None else ""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        tag("title", title),
        tag("style", Markup(_resource("page.css"))),
    )
    scripts = (
        join(
            tag("div", id="tip", role="status"),
            tag("script", as_json(data), id="data", type="application/json"),
            tag("script", Markup(script)),
        )
        if data is not None
        else None
    )
    whole = tag(
        "html", head, "\n", tag("body", header, "\n", tag("main", body), scripts), lang="en"
    )
    return f"<!doctype html>\n{whole}\n"


def as_json(data: object) -> Markup:
    """Return JSON, escaped so that it cannot end the HTML element that contains it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def headline(verdict: str, *above: Markup | None, lead: str, below: Markup | None = None) -> Markup:
    """Return the header of a page, with the verdict in large letters."""
    inner = tag(
        "div",
        *above,
        tag("h1", icon(verdict), tag("span", word(verdict))),
        tag("p", lead, class_="lead"),
        below,
    )
    return tag("header", inner, class_=f"verdict {tone(verdict)}")


def section(
    title: str, about: str | None, *content: Markup | None, id_: str, class_: str | None = None
) -> Markup:
    """Return a section: its title at the left and content at the right; with the class `full`, the
    title above."""
    header = tag("header", tag("h2", title), tag("p", about) if about else None)
    return tag("section", header, tag("div", *content), "\n", id=id_, class_=class_)


def tone(verdict: str) -> str:
    """Return the CSS class with the colours of a verdict."""
    return verdict if verdict in _ICONS else "unknown"


def word(verdict: str) -> str:
    """Return a verdict as a headline."""
    return WORDS.get(verdict, "Unknown")


def icon(verdict: str) -> Markup:
    """Return a shape for a verdict, so that verdicts do not differ by colour alone."""
    path = tag(
        "path",
        d=_ICONS.get(verdict, _QUESTION),
        fill="none",
        stroke="currentColor",
        stroke_width=3.4,
        stroke_linecap="round",
        stroke_linejoin="round",
    )
    return tag(
        "svg", path, viewBox="0 0 24 24", aria_hidden="true", xmlns="http://www.w3.org/2000/svg"
    )


def chip(verdict: str, href: str | None = None, *, before: str = "") -> Markup:
    """Return a verdict for a table, with a link if it has one."""
    return tag(
        "a" if href else "span",
        icon(verdict),
        before + verdict,
        class_=f"chip {tone(verdict)}",
        href=href,
    )


def figure(*content: Markup | None, caption: str | None = None) -> Markup:
    """Return a figure with its caption: a chart, in all its widths."""
    return tag("figure", tag("figcaption", caption) if caption else None, *content)


def table(class_: str, head: list[Markup], rows: list[Markup]) -> Markup:
    """Return a table that scrolls sideways if it is too wide."""
    inner = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_=class_)
    return tag("div", inner, class_="wide-table")


@cache
def _resource(name: str) -> str:
    return files("stormcast.pipeline.report").joinpath(name).read_text()


def _policy(script: str) -> str:
    """Return the policy: nothing is loaded, and no script runs but `script`."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"
