"""Several JavaScript modules as one script, for a page that has no server to import from.

Each module becomes a function that is called once, in the order of their imports. It understands what the modules of
assets/stage use: named imports of a neighbour, and exports of functions, classes and constants where they are made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r"^import \{([^}]*)\} from '\./(\w+\.js)';$", re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function\*? |class |const )(\w+)", re.MULTILINE)
_RENAMED = re.compile(r"\s+as\s+")
_LEFT = re.compile(r"^\s*(?:import|export)\b(?!\.)", re.MULTILINE)


def one_script(modules: Mapping[str, str], entry: str) -> str:
    """The script. It leaves `modules`, where `modules["entry.js"]` holds what the entry exports.

    Raises ValueError for modules that import one another in a circle or that it does not understand.
    """
    order: list[str] = []
    _visit(modules, entry, order, ())
    made = "\n".join(_as_function(name, modules[name]) for name in order)
    if "</script" in made.lower() or "<!--" in made:
        raise ValueError("a script in a page must not hold what ends or hides it")
    return f"const modules = {{}};\n{made}\n"


def _visit(modules: Mapping[str, str], name: str, order: list[str], path: tuple[str, ...]) -> None:
    if name in path:
        raise ValueError(f"modules in a circle: {' → '.join((*path, name))}")
    if name in order:
        return
    for _, neighbour in _IMPORT.findall(modules[name]):
        _visit(modules, neighbour, order, (*path, name))
    order.append(name)


def _as_function(name: str, source: str) -> str:
    names = [exported for _, exported in _EXPORT.findall(source)]
    body = _IMPORT.sub(lambda found: _taken(found[1], found[2]), _EXPORT.sub(r"\1\2", source))
    left = _LEFT.search(body)
    if left:
        raise ValueError(f"{name}: not understood: {body[left.start() :].strip().splitlines()[0]}")
    return f"modules['{name}'] = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();"


def _taken(names: str, neighbour: str) -> str:
    """An import as an assignment: `{ a, b as c }` of a module is `{ a, b: c }` of an object."""
    assigned = _RENAMED.sub(": ", names)
    return f"const {{{assigned}}} = modules['{neighbour}'];"
