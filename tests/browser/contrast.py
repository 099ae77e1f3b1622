"""Every piece of our own text against the first opaque background behind it, by WCAG's formula."""

from __future__ import annotations

from playwright.sync_api import Page

LEAST = 4.5


def weak_texts(page: Page) -> list[str]:
    """What falls below 4.5 : 1, with its class, its beginning and its contrast; disabled controls are exempt."""
    weak: list[str] = page.evaluate(CONTRAST, LEAST)
    return weak


CONTRAST = """(least) => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3] > 250) return color;
    }
    return [255, 255, 255, 255];
  };
  const weak = [];
  for (const e of document.querySelectorAll('[class*=tbt-] *, [class*=tbt-]')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('[aria-disabled=true]')) continue;
    const [a, b] = [luminance(rgba(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least) weak.push(`${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return weak;
}"""
