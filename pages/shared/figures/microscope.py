"""The microscope's pictures as HTML, as Streamlit lets no SVG through: a product to scale, a layer as a path."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

MOST_PIXELS, LEAST_PIXELS = 54.0, 2.0


class Product(NamedTuple):
    """`rows` × `inner` times `inner` × `columns`; `left` and `right` say what is multiplied: "x", "q", "a", "weights",
    "k" or "v"."""

    rows: int
    inner: int
    columns: int
    left: str
    right: str

    @property
    def longest(self) -> int:
        """The longest side."""
        return max(self[:3])


class Stop(NamedTuple):
    """One operator on the path: what it is called, its product where it is one, what stands below."""

    name: str
    label: str
    product: Product | None
    told: str


def product_picture(product: Product, longest: int, words: str) -> str:
    """Left times right is the result, sides by the square root of their lengths, the longest of all `longest`."""
    return _written(_picture(product, longest, words))


def path_of_layer(stops: Sequence[Stop], chosen: str, words: str) -> str:
    """The operators in order; the chosen one stands out. Products are drawn, what is between them is small."""
    longest = max((stop.product.longest for stop in stops if stop.product), default=1)
    path = Element("ol", {"class": "tbt-path", "aria-label": words})
    for stop in stops:
        kind = f"tbt-path-product tbt-path-{stop.product.right}" if stop.product else "tbt-path-small"
        item = SubElement(path, "li", {"class": kind, "data-operator": stop.name})
        if stop.name == chosen:
            item.set("aria-current", "step")
        SubElement(item, "b").text = stop.label
        if stop.product:
            item.append(_picture(stop.product, longest, ""))
        if stop.told:
            SubElement(item, "small").text = stop.told
    return _written(path)


def _picture(product: Product, longest: int, words: str) -> Element:
    def pixels(length: int) -> float:
        return max(LEAST_PIXELS, MOST_PIXELS * sqrt(length / longest))

    rows, inner, columns = (pixels(length) for length in product[:3])
    spoken = {"role": "img", "aria-label": words} if words else {"aria-hidden": "true"}
    picture = Element("span", {"class": "tbt-blocks", **spoken})
    blocks = ((product.left, inner, rows, "·"), (product.right, columns, inner, "="), ("result", columns, rows, ""))
    for kind, wide, high, sign in blocks:
        block = SubElement(picture, "i", {"class": f"tbt-block-{kind}"})
        block.set("style", f"width: {wide:.1f}px; height: {high:.1f}px")
        block.tail = sign
    return picture


def _written(element: Element) -> str:
    return tostring(element, encoding="unicode", method="html")
