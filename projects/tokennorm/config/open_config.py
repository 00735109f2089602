"""Reads configs and applies `--cfg-options`, with errors for misspelled keys."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmengine import registry
from mmengine.config import Config
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from tokennorm.base.messages import UserError, did_you_mean, user_errors
from tokennorm.config.paths import config as config_path
from tokennorm.config.tree import walk
from tokennorm.registry import arguments_of

_NEAR = 0.8  # similarity from which a key is a typo: that of max_epoch and max_epochs, not of stem_cfg and init_cfg
RUNNER = set(inspect.signature(Runner.__init__).parameters)
_PACKAGES = ('tokennorm', 'mmengine', 'mmcv', 'mmdet', 'mmpretrain', 'mmseg', 'torch', 'torchvision', 'timm')
_READ = {  # by mmengine, mmdet and mmpretrain, besides the arguments of the Runner
    *('runner_type', 'auto_scale_lr', 'tta_model', 'tta_pipeline', 'data_preprocessor', 'custom_imports', 'compile'),
    *('allow', 'model_wrapper_cfg', 'find_unused_parameters', 'sync_bn', 'strategy', 'backend_args'),
    *('activation_checkpointing', 'efficient_conv_bn_eval'),
}


def read_config(name: str | Path) -> Config:
    """Returns mmengine's config of a file with a model, or of a config's name (`tokennorm.config`)."""
    with user_errors(FileNotFoundError):
        path = config_path(name)
    try:
        cfg = Config.fromfile(path)
        is_whole = isinstance(cfg.get('model'), Mapping)
        if is_whole:
            name_types(cfg)
    except Exception as error:
        lines = str(error).splitlines()  # mmengine lists sys.path between them
        text = ' '.join(lines[:1] + lines[1:][-1:])
        raise UserError(f'config {path} cannot be read: {type(error).__name__}: {text}') from None
    if not is_whole:
        raise UserError(f'{path} has no model: it is not a whole config')
    return cfg


def unread_entries(cfg: Config) -> Iterator[tuple[str, str]]:
    """Yields the file of a config and a text for each of its variables that nothing reads."""
    names = unused_variables(cfg.filename) if getattr(cfg, 'filename', None) and not _has_other_code(cfg) else ()
    yield from ((cfg.filename, f'nothing reads {name}{_meant(cfg, name)}') for name in names)


def unused_variables(path: str | Path) -> list[str]:
    """Returns the names that a config with a base sets and does not use, such as a pipeline that the base has used."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError):  # of a text that was never in this file, or YAML
        return []
    given = [part.id for node in tree.body for part in getattr(node, 'targets', ()) if isinstance(part, ast.Name)]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    known = RUNNER | _READ | used | {'_base_'}
    return [name for name in dict.fromkeys(given) if name not in known] if '_base_' in given else []


def name_types(cfg: Config) -> None:
    """Names the types of a pure Python config: `type`, and entries whose key ends in `_type`, that are classes.

    Where a registry of the config's scope or mmengine has it, that is the registered name, otherwise the path for an
    import. A `default_scope` of None becomes the package of the model. Afterwards such a config is as any other: types
    compare with names, and the written config can be read again. A base `tokennorm::NAME` gives its dicts the scope of
    this package, in which mmdet's types are not found: the config's own scope replaces it.

    Two forms that mmengine and mmcv refuse in one process are replaced: a loop with both `type` and `by_epoch`, as
    SOLOv2's configs have it, and mmcv's `MMSyncBN`, by torch's synchronized batch norm.
    """
    cls = cfg.model.get('type')
    if 'default_scope' in cfg and cfg.default_scope is None and inspect.isclass(cls):
        cfg.default_scope = cls.__module__.partition('.')[0]
    for part in (part for key in list(cfg) for _, part in walk(cfg[key], key)):
        if part.get('_scope_') == 'tokennorm':
            del part['_scope_']
        for key, value in list(part.items()):
            if key.endswith('type') and (inspect.isclass(value) or inspect.isroutine(value)):
                part[key] = _name(value, cfg.get('default_scope'))
        if part.get('type') == 'MMSyncBN':
            part['type'] = 'SyncBN'
    if 'type' in (cfg.get('train_cfg') or {}):
        cfg.train_cfg.pop('by_epoch', None)


def _name(cls: Any, scope: str | None) -> str:
    registries = [known for known in _registries() if known.module_dict.get(cls.__name__) is cls]
    in_scope = any(known.scope in ('mmengine', scope) for known in registries)
    if in_scope or cls.__module__.startswith('mmcv.ops.'):  # heads look these up by their names
        return cls.__name__
    return f'{registries[0].scope if registries else cls.__module__}.{cls.__qualname__}'


def _registries() -> list[registry.Registry]:
    """mmengine's registries and their children."""
    roots = [value for value in vars(registry).values() if isinstance(value, registry.Registry)]
    return roots + [child for root in roots for child in root.children.values()]


def use_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Applies `--cfg-options`."""
    check_options(cfg, options)
    merge_options(cfg, options)


def check_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Raises `UserError` for an entry that nothing reads, and for a key that resembles an existing one.

    Other new keys are arguments with usual defaults.
    """
    for path in options or {}:
        node: Any = cfg
        parts = path.split('.')
        if parts[0] in _variables(cfg, parts[0]):
            raise UserError(f'--cfg-options: nothing reads {parts[0]}{_meant(cfg, parts[0])}')
        for i, part in enumerate(parts):
            if isinstance(node, list | tuple) and part.isdigit() and int(part) < len(node):
                node = node[int(part)]
            elif isinstance(node, Mapping | Config) and part in node:
                node = node[part]
            else:
                above = '.'.join(parts[:i]) or 'the config'
                keys = set(node) | _arguments(node, above, cfg) if isinstance(node, Mapping | Config) else set()
                inside = '' if 'type' in keys else _inside(node, above, part)
                if part not in keys and (meant := inside or did_you_mean(part, sorted(keys), _NEAR)):
                    raise UserError(f'--cfg-options: {path}: {above} has no {part}{meant}')
                break


def _meant(cfg: Config, name: str) -> str:
    """Names an entry of this name in a part that is read, or a similar part."""
    places = filter(None, (_inside(cfg[key], key, name) for key in RUNNER & set(cfg)))
    return min(places, key=len, default='') or did_you_mean(name, RUNNER, _NEAR)


def _inside(node: Any, path: str, key: str) -> str:
    """Names an entry with this key inside a part of a config, such as `model.test_cfg.rcnn.score_thr`; '' without."""
    names = [name for name, part in walk(node, path) if key in part]
    return f'; set {names[0]}.{key}' if names else ''


def _arguments(node: Any, name: str, cfg: Config) -> set[str]:
    """The arguments that a part of a config may have: of the Runner, of a loader, or of the class of its type."""
    if node is cfg:
        return RUNNER
    if name.endswith('_dataloader'):
        return set(inspect.signature(DataLoader.__init__).parameters)
    return set(arguments_of(node, cfg.get('default_scope'), *_registries())) if 'type' in node else set()


def merge_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Sets entries of a config in place. A key may be new: many arguments have defaults that no config names."""
    for key, value in (options or {}).items():
        try:
            cfg.merge_from_dict({key: value})
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            reason = str(error.args[0] if error.args else error).partition(' [')[0]  # without the whole list
            raise UserError(f'--cfg-options: {key}: {reason}') from None
    if not isinstance(cfg.get('model', {}), Mapping):
        raise UserError(f'--cfg-options: model={cfg.model!r} is not the model of a config')


def drop_variables(cfg: Config) -> None:
    """Removes the variables of a config file, such as `max_epochs`, which nothing reads.

    In the config that is written they would contradict what options have changed.
    """
    for name in _variables(cfg):
        cfg.pop(name)


def _variables(cfg: Config, *more: str) -> set[str]:
    """Returns the entries that nothing reads."""
    return set() if _has_other_code(cfg) else {*cfg, *more} - RUNNER - _READ


def _has_other_code(cfg: Config) -> bool:
    """Returns whether a config runs code of other packages, which may read any entry as `runner.cfg.NAME`."""
    imports = (cfg.get('custom_imports') or {}).get('imports') or []
    names = [imports] if isinstance(imports, str) else [*imports]
    names += [cfg.get('default_scope') or 'mmengine']
    parts = (part for key in cfg for _, part in walk(cfg[key], key))
    names += [name for part in parts if '.' in (name := str(part.get('type')))]
    return any(name.partition('.')[0] not in _PACKAGES for name in names)
