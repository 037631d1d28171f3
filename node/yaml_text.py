"""YAML that people write: bounded, strict, and with the line where something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from stormcast.node.core.errors import ConfigError, require

MAX_FILE: Final = 1 << 20


class _Strict(yaml.SafeLoader):
    """YAML in which a key may stand only once."""

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


def parse_yaml(text: str, what: str) -> Any:  # noqa: ANN401 whatever it says
    """The value of a YAML text."""
    try:
        return yaml.load(text, _Strict)  # noqa: S506 a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{what}{where}: not YAML: {problem}") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{what}: not YAML that can be meant: {error}") from None


def lines_of(text: str, key: str) -> list[tuple[int, dict[str, int]]]:
    """Of a list under a key of a text that is good YAML: on which line each entry stands, and each
    setting of an entry `name: {settings}`."""
    root = yaml.compose(text, yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    listed = next((value for name, value in pairs if name.value == key), None)
    found: list[tuple[int, dict[str, int]]] = []
    for entry in listed.value if isinstance(listed, yaml.SequenceNode) else ():
        settings = (
            entry.value[0][1] if isinstance(entry, yaml.MappingNode) and entry.value else None
        )
        inner = settings.value if isinstance(settings, yaml.MappingNode) else ()
        lines = {str(name.value): name.start_mark.line + 1 for name, _value in inner}
        found.append((entry.start_mark.line + 1, lines))
    return found


def text_of(path: str, what: str) -> str:
    """What a file says; ConfigError, which begins with what asks for it, if it cannot be read."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(
            f"{what}: {path}: {error.strerror}; name a file that can be read"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{what}: {path}: not text in UTF-8; save it as that") from None
    require(len(text) <= MAX_FILE, f"{what}: {path}: more than {MAX_FILE} bytes; write less")
    return text
