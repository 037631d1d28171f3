"""YAML as YAML 1.1 defines it, with the place of each value: the files of members and stacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from stormcast.node.core.errors import Place
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.parsing import Loader, parse, place_of


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """The content of a YAML file."""

    source: str
    content: Any
    root: yaml.Node | None

    def place(self, *keys: object) -> Place:
        """Return the place of the key, or the entry, to which these keys and numbers lead; if the
        file lacks it, of the last on the way."""
        node, mark = self.root, self.root and self.root.start_mark
        for key in keys:
            if isinstance(node, yaml.MappingNode):
                found = [(name, value) for name, value in node.value if name.value == str(key)]
                if not found:
                    break
                # Merged keys (`<<`) stand before the mapping's own, which win.
                name, node = found[-1]
                mark = name.start_mark
            elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
                node = node.value[key]
                mark = node.start_mark
        return place_of(mark, self.source)

    def item(self, key: str = "") -> PlainItem:
        """Return the content as a value that errors call `key`, and that knows its places."""
        return PlainItem(self.content, key, self.place)


def read_document(text: str, source: str) -> Document:
    """Read the document of a text; a key may stand only once in a mapping."""
    return parse(_Plain(text, source, "document"), _document)


def _document(loader: _Plain) -> Document:
    node = loader.get_single_node()
    content = None if node is None else loader.construct_document(node)
    return Document(loader.source, content, node)


class _Plain(Loader):
    """Refuses a key that stands twice in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 as its base has it
        seen = set()
        for key, _value in node.value:
            name = (key.tag, key.value if isinstance(key.value, str) else "")
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name[1]} is there twice; keep one", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)
