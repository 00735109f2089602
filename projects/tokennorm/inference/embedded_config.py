"""The config inside a checkpoint, read as data: no code of the file runs."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from mmengine.config import Config

from tokennorm.base.messages import UserError
from tokennorm.checkpoints import Checkpoint

# A name in a registry, with or without a scope. A longer path would be imported by mmengine, whatever it is.
_TYPE = re.compile(r'((mmengine|mmcv|mmdet|mmpretrain|tokennorm)\.)?[A-Za-z]\w*')


def embedded_config(checkpoint: Checkpoint) -> Config:
    """Returns the config that mmengine writes into a checkpoint's `meta`, as text of assignments.

    Raises:
        UserError: for a checkpoint without a config, and for a config that is more than names, numbers, text, lists and
            dictionaries, or has types that are not names in a registry.
    """
    text, source = checkpoint.meta.get('cfg'), checkpoint.source
    if not isinstance(text, str) or not text.strip():
        raise UserError(f'{source} has no config inside; name one before it: CONFIG {source}')
    try:
        values = {}
        for statement in ast.parse(text).body:
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
                raise ValueError(f'line {statement.lineno} is not an assignment')
            literal = _DictsAsLiterals().visit(statement.value)
            values[statement.targets[0].id] = ast.literal_eval(literal)
        _check_types(values)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise UserError(
            f'the config inside {source} is not used, because it is more than plain data ({error}); name a config '
            f'that you trust before it: CONFIG {source}'
        ) from None
    return Config(values)


class _DictsAsLiterals(ast.NodeTransformer):
    """Replaces `dict(a=1)` by `{'a': 1}`, which `ast.literal_eval` reads."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if getattr(node.func, 'id', None) != 'dict' or node.args or not all(keyword.arg for keyword in node.keywords):
            return node
        return ast.Dict([ast.Constant(keyword.arg) for keyword in node.keywords], [one.value for one in node.keywords])


def _check_types(value: Any) -> None:
    if isinstance(value, Mapping):
        kind = value.get('type', 'X')
        if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
            raise ValueError(f'type={kind!r} is not a name in a registry')
    for one in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        _check_types(one)
