"""HTML made on this side: text never becomes markup. Pure."""

from __future__ import annotations

from html import escape

VOID = frozenset({"rect", "line", "br"})


class Html(str):
    """A piece of HTML, as opposed to text."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: object) -> Html:
    """An element. Attributes: ``class_`` is class, ``aria_label`` is aria-label; False and None leave one out, True is
    one without a value."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Html) else escape(child, quote=False) for child in children)
    return Html(f"<{name}{shown}>{inner}</{name}>" if inner or name not in VOID else f"<{name}{shown}/>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
