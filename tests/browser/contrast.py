"""Contrast by WCAG's formula: of our own texts against what lies behind them, and of the canvas's inks."""

from __future__ import annotations

from playwright.sync_api import Page

LEAST = 4.5


def weak_texts(page: Page) -> list[str]:
    """Our texts below 4.5 : 1, with their class, beginning and contrast; disabled controls are exempt."""
    weak: list[str] = page.evaluate(f"(least) => {{ {MEASURE} {TEXTS} }}", LEAST)
    return weak


def weak_inks(page: Page, names: tuple[str, ...]) -> list[str]:
    """Which of these colours is below 4.5 : 1 on a card's paper, which the canvas lies on."""
    weak: list[str] = page.evaluate(f"([least, names]) => {{ {MEASURE} {INKS} }}", [LEAST, names])
    return weak


MEASURE = """
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
  const contrast = (color, element) => {
    const [a, b] = [luminance(rgba(color)), luminance(behind(element))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const weak = [];
"""

TEXTS = """
  for (const e of document.querySelectorAll('[class*=tbt-] *, [class*=tbt-]')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('[aria-disabled=true]')) continue;
    const ratio = contrast(getComputedStyle(e).color, e);
    if (ratio < least) weak.push(`${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return weak;
"""

INKS = """
  const probe = document.querySelector('.tbt-picture').appendChild(document.createElement('i'));
  for (const name of names) {
    probe.style.color = `var(--tbt-${name})`;
    const ratio = contrast(getComputedStyle(probe).color, probe);
    if (ratio < least) weak.push(`${name} ${ratio.toFixed(2)}`);
  }
  probe.remove();
  return weak;
"""
