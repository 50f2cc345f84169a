"""Reads what the docstrings of astray have beyond plain numpy style, for the reference pages of the site.

- A class whose docstring is made when it is imported (a detector's parameters come from the settings) has that one.
- The remark beside a field (``heads: int = 10  # of the reward``) becomes the field's docstring.
- A setting or parameter of a detector shows its default, not its declaration.
- An example outside a section of examples is shown as code.
- Sphinx roles (``:class:`~astray.Trajectories```) become links, or plain code where the target has no page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`(?:([^`<]*?)\s*<([^`>]*)>|(~?)([^`]*))`")
DEFAULT_AT = {"setting": 1, "parameter": 0}  # the place of the default among the arguments of a declaration
REMARK = re.compile(r"^\s*\w+: [^#]*#\s*(.+)$")


def linked(text: str) -> str:
    """Returns a docstring with its roles as links, and its double backticks as single ones.

    >>> linked("a :class:`~astray.core.errors.DataError`, ``x``")
    'a <autoref identifier="astray.core.errors.DataError" optional><code>DataError</code></autoref>, `x`'
    """

    def link(found: re.Match[str]) -> str:
        words, target, short, path = found.groups()
        target = target or path
        shown = words or (target.rpartition(".")[2] if short else target)
        return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'

    if not re.search(r"^Examples?\n-+$", text, re.MULTILINE):  # griffe marks the examples of that section itself
        text = re.sub(r"(^>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", text, flags=re.MULTILINE)
    return re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", ROLE.sub(link, text))


class Docstrings(griffe.Extension):
    """Completes the docstrings of every object that is documented."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Takes the docstring that a class has once it is imported, if it has another one then."""
        if cls.docstring is None or not cls.path.startswith("astray.model"):
            return
        found: Any = importlib.import_module(cls.module.path)
        for name in cls.path.removeprefix(f"{cls.module.path}.").split("."):
            found = getattr(found, name)
        cls.docstring.value = linked(inspect.getdoc(found) or cls.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Takes the remark beside a field for its docstring, and the default of a setting for its value."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) in DEFAULT_AT:
            attr.value = attr.value.arguments[DEFAULT_AT[str(attr.value.function)]]
        if (
            attr.docstring is None
            and attr.parent is not None
            and attr.parent.is_class
            and attr.lineno == attr.endlineno
        ):
            remark = REMARK.match(attr.source)
            if remark is not None and "noqa" not in remark[1]:
                attr.docstring = griffe.Docstring(remark[1], parent=attr, lineno=attr.lineno)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Turns the roles of a docstring into links."""
        if obj.docstring is not None:
            obj.docstring.value = linked(obj.docstring.value)
