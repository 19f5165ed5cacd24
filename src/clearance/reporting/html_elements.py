"""Build HTML and SVG elements.

The standard library's serialiser escapes all text and attributes when it writes them, so text can never become markup.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from clearance.core.text import visible

Child = Element | str | None


def el(tag: str, *children: Child, **attributes: Any) -> Element:
    """Return an element with its children and attributes; children and attributes that are None are left out.

    Attributes are written with underscores: `class_` becomes class, `aria_label` becomes aria-label.
    """
    shown = {_name(k): visible(_value(v)) for k, v in attributes.items() if v is not None}
    made = Element(tag, shown)
    for child in children:
        if isinstance(child, str):
            _add_text(made, visible(child))
        elif child is not None:
            made.append(child)
    return made


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-") if key != "viewBox" else key


def _value(value: Any) -> str:
    """Return an attribute as text; floats are rounded to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _add_text(made: Element, text: str) -> None:
    if len(made):
        made[-1].tail = (made[-1].tail or "") + text
    else:
        made.text = (made.text or "") + text


def document(html: Element) -> bytes:
    """Return the HTML page as bytes."""
    return b"<!DOCTYPE html>\n" + ElementTree.tostring(html, encoding="utf-8", method="html") + b"\n"
