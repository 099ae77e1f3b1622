"""Numbers at the rim: base units come in, a reader's units go out."""

from __future__ import annotations

MINUS = "−"


def count(value: int) -> str:
    """A whole number with separators: 1,082,880."""
    return f"{value:,}".replace("-", MINUS)


def scaled(value: float) -> str:
    """Three significant figures and a decimal prefix: 9.77 G."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        # 999.5 would be written as 1000 of this prefix
        if abs(value) < 999.5 or prefix == "P":
            break
        value /= 1000
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if prefix else 0
    return f"{value:.{digits}f} {prefix}".strip()


def scaled_bytes(value: int, units: str) -> str:
    """Bytes with a prefix: "binary" 1.03 MiB, "decimal" 1.08 MB."""
    step, names = (1024, ("KiB", "MiB", "GiB", "TiB")) if units == "binary" else (1000, ("kB", "MB", "GB", "TB"))
    if value < step:
        return f"{value} B"
    size, unit = value / step, names[0]
    for unit in names:
        # 999.95 would be written as 1000.0 of this unit, as 1023.95 would as 1024.0
        if size < step - 0.05 or unit == names[-1]:
            break
        size /= step
    return f"{size:.{2 if size < 9.995 else 1}f} {unit}"


def milliseconds(seconds: float) -> str:
    """A duration: 0.31 ms, 14.2 ms, 216.3 ms, 2.41 s. What is added up or divided on the screen comes out there too."""
    ms = seconds * 1000
    if ms >= 999.95:
        return f"{seconds:.2f} s"
    return f"{ms:.1f} ms" if ms >= 9.995 else f"{ms:.2f} ms"


def percent(share: float) -> str:
    """A share of one: 41%, 6.2%, 0.3%."""
    return f"{share:.0%}" if share >= 0.0995 else f"{share * 100:.1f}%" if share >= 0.001 else "< 0.1%"


def gap_percent(value: int, exact: int) -> str:
    """How far `value` is off: +7.9%, −0.04%, 0%."""
    off = 100 * (value - exact) / exact
    digits = 1 if abs(off) >= 0.1 else 3
    return "0%" if value == exact else f"{off:+.{digits}f}%".replace("-", MINUS)


def significant(value: float) -> str:
    """Three significant figures, whole from a hundred on, with separators: 0.354, 4, 62.5, 3,957."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
