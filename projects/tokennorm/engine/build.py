"""Builds mmengine's runner of a config after checking what breaks most often."""

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import RUNNERS, Registry, init_default_scope

from tokennorm.checkpoints import CheckpointError, check_fit, find_checkpoint, read_checkpoint
from tokennorm.checkpoints.check_init import check_allow_missing, check_start
from tokennorm.checkpoints.in_mmengine import keep_mmengine_from_unpickling
from tokennorm.checkpoints.reading import common_meta, newest_checkpoint, state_dict_in, trained_meta
from tokennorm.engine.checks import (
    check_classes,
    check_config_data,
    check_neck,
    check_optimizer,
    check_runner_type,
    check_strides,
)
from tokennorm.engine.compat import BUILT, noted_builds
from tokennorm.engine.distributed import start_cpu_processes, unwrapped
from tokennorm.engine.hooks import DataErrorHook
from tokennorm.engine.resume.make_resumable import latest_checkpoint, make_resumable
from tokennorm.engine.summary import Runner
from tokennorm.environment import require_mmcv_ops
from tokennorm.messages import UserError, did_you_mean, is_first_process, user_errors
from tokennorm.output_dir import make_output_dir


def build_runner(cfg: Config, splits: tuple[str, ...]) -> Runner:
    """Builds mmengine's runner of a config after checking what breaks most often.

    Raises:
        UserError: with what to do, if mmcv has no compiled ops, a dataset does not fit the config, the initial weights
            are not found, or the work directory cannot be written to.
    """
    with user_errors(ImportError, RuntimeError, ValueError, FileNotFoundError, ConnectionError):
        require_mmcv_ops()
        keep_mmengine_from_unpickling()
        for key in ('model', *(f'{split}_dataloader' for split in splits if split != 'val')):
            if not cfg.get(key):
                raise ValueError(f'{cfg.filename} has no {key}: it is not a whole config')
        check_runner_type(cfg)
        check_config_data(cfg, splits)
        if 'train' in splits:
            make_resumable(cfg)
            _find_checkpoint_to_resume(cfg)
            if cfg.get('load_from'):
                cfg.load_from = find_checkpoint(cfg.load_from)
            check_start(cfg)
        make_output_dir(cfg.work_dir)
        start_cpu_processes(cfg)
        init_default_scope(cfg.get('default_scope') or 'mmengine')  # Runner skips this for a name that it has seen
    with build_errors():
        runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    model = unwrapped(runner.model)
    with user_errors(ValueError):
        check_neck(model, cfg.model.get('neck'))
        check_strides(model)
        check_allow_missing(model)
        check_optimizer(cfg.get('optim_wrapper'))
    runner.register_hook(DataErrorHook())
    if 'train' in splits:
        with build_errors():
            _check_start_fits(runner, cfg)
    return runner


def _find_checkpoint_to_resume(cfg: Config) -> None:
    """Sets `load_from` to the latest checkpoint if none is named. Without any, training starts from the beginning."""
    with warnings.catch_warnings():
        if not is_first_process():  # all ranks find the same
            warnings.simplefilter('ignore')
        if not cfg.get('resume'):
            _warn_of_an_earlier_training(cfg.work_dir)
        elif not cfg.get('load_from'):
            latest = latest_checkpoint(cfg.work_dir)
            cfg.load_from = None if latest is None else str(latest)
            if latest is None:
                cfg.resume = False
                warnings.warn(
                    f'--resume: no checkpoint in {cfg.work_dir}; training starts from the beginning', stacklevel=3
                )


def _warn_of_an_earlier_training(work_dir: str) -> None:
    if not Path(work_dir).is_dir():
        return
    try:
        latest = newest_checkpoint(Path(work_dir))
    except FileNotFoundError:
        return
    warnings.warn(
        f'{work_dir} has checkpoints of an earlier training run, which this one overwrites; --resume continues from '
        f'the latest, {latest.name}; another --work-dir keeps them',
        stacklevel=4,
    )


def _check_start_fits(runner: Runner, cfg: Config) -> None:
    """Checks that a checkpoint fits, since mmengine silently skips tensors that do not.

    To resume, all tensors must fit and the classes must be the same. With `load_from` only, the heads may differ.
    """
    checkpoint = cfg.get('load_from')
    if not checkpoint:
        return
    model = unwrapped(runner.model)
    with user_errors(CheckpointError, OSError, ValueError):
        content = read_checkpoint(checkpoint)
        state_dict = state_dict_in(content, checkpoint)
        if cfg.get('resume'):
            if 'optimizer' not in content:
                raise CheckpointError(
                    f'--resume: {checkpoint} has only weights, not the state of a training run. '
                    f'To start a new run from them: --cfg-options load_from={checkpoint}'
                )
            metainfo = getattr(runner.train_dataloader.dataset, 'metainfo', None)
            classes, trained = common_meta(metainfo).get('classes'), trained_meta(content).get('classes')
            if classes and trained:
                check_classes(trained, classes, checkpoint)
            check_fit(model, state_dict, checkpoint)
        elif hasattr(model, 'backbone'):
            backbone = {k.removeprefix('backbone.'): v for k, v in state_dict.items() if k.startswith('backbone.')}
            check_fit(model.backbone, backbone, f'load_from={checkpoint}')


@contextmanager
def build_errors() -> Iterator[None]:
    """Ends the program with what is wrong, and in the arguments of which class, where a part of a config cannot be
    built. Other errors pass.

    Raises:
        UserError: for an error of a constructor, or of the search for its class.
    """
    try:
        with noted_builds():
            yield
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        if not hasattr(error, BUILT):
            raise
        raise UserError(f'{_text(error, *getattr(error, BUILT))}') from error


def _text(error: Exception, registry: Registry, cfg: Any) -> str:
    """Description of the problem."""
    if not isinstance(cfg, Mapping) or cfg.get('type') is None:
        return f'a {registry.name} without a type in the config: {dict(cfg or {})!r:.200}'
    kind = cfg['type']
    with registry.switch_scope_and_registry(cfg.get('_scope_')) as searched:
        cls = searched.get(kind) if isinstance(kind, str) else kind
        if cls is None:
            return f'type={kind!r}: there is no such {searched.name}{_did_you_mean(str(kind), searched)}'
    unknown = _unknown_arguments(cls, cfg) if isinstance(error, TypeError) else []
    if unknown:
        accepted = list(inspect.signature(cls).parameters)
        names = ', '.join(f'{name!r}{did_you_mean(name, accepted)}' for name in unknown)
        return f'{kind} has no argument {names}; it has {", ".join(accepted)}'
    text = str(error) or f'failed at `{traceback.extract_tb(error.__traceback__)[-1].line}`'
    return text if text.startswith(cls.__name__) else f'{kind}: {text}'


def _unknown_arguments(cls: Callable[..., Any], cfg: Mapping[str, Any]) -> list[str]:
    """The arguments that a constructor does not take; none where it takes any."""
    accepted = inspect.signature(cls).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        return []
    return [name for name in cfg if name not in accepted and name not in ('type', '_scope_')]


def _did_you_mean(kind: str, registry: Registry) -> str:
    """The nearest name in the registry that was searched, or the same name in that of another scope."""
    children = registry.children | (registry.parent.children if registry.parent else {})
    scope, _, name = kind.rpartition('.')
    if scope:
        return did_you_mean(name, sorted(children[scope].module_dict) if scope in children else [])
    elsewhere = [scope for scope, child in children.items() if kind in child.module_dict]
    if elsewhere:
        return f' (did you mean {elsewhere[0]}.{kind}?)'
    searched = [registry, registry.parent] if registry.parent else [registry]
    return did_you_mean(kind, sorted({name for one in searched for name in one.module_dict}))
