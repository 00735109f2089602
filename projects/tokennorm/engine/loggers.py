"""Loggers that the user chose, mmengine's visualization backends: what they raise does not end training."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mmengine.visualization import LocalVisBackend
from mmengine.visualization.vis_backend import BaseVisBackend, MLflowVisBackend, force_init_env

from tokennorm.base.messages import UserError
from tokennorm.plan.options import LOGGERS
from tokennorm.registry import type_name

_NAMES = {backend: name for name, backend in LOGGERS.items()}
_WAYS = {  # where its own reason does not say what to do
    'wandb': 'run `wandb login`, or set WANDB_MODE=offline',
    'mlflow': 'set MLFLOW_TRACKING_URI to a server that answers, or to nothing for a database in the work directory',
    'clearml': 'run `clearml-init`, or set CLEARML_OFFLINE_MODE=1',
    'neptune': 'set NEPTUNE_API_TOKEN and NEPTUNE_PROJECT, or NEPTUNE_MODE=offline',
    'dvclive': 'run `git init` and `dvc init`',
}
_CALLS = ('add_config', 'add_graph', 'add_image', 'add_scalar', 'add_scalars', 'close')


class GuardedBackend:
    """A backend whose errors are a `UserError` at its first call, and one warning later.

    After an error the next call is left out, after another one the next two, then four: a server that does not answer
    costs its timeout each time.
    """

    def __init__(self, name: str, backend: BaseVisBackend, warn: Callable[[str], None]) -> None:
        self.name, self.backend, self.warn = name, backend, warn
        self.began, self.ended, self.errors, self.left_out = False, False, 0, 0

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in _CALLS else getattr(self.backend, name)

    def _call(self, name: str, /, *args: Any, **options: Any) -> None:
        is_last = name == 'close'
        if is_last and (self.ended or not self.began):
            return
        self.ended = is_last
        if self.left_out and not is_last:
            self.left_out -= 1
            return
        try:
            getattr(self.backend, name)(*args, **options)
            self.began = True
        except (Exception, SystemExit) as error:
            text = ' '.join(str(error).split()).rstrip('.')
            reason = f'the logger {self.name}: {type(error).__name__}: {text:.400}'
            if not self.began:
                ways = '; '.join(filter(None, [reason, _WAYS.get(self.name), f'or train without {self.name}']))
                raise UserError(ways) from error
            self.errors, self.left_out = self.errors + 1, 2**self.errors
            if self.errors == 1:
                self.warn(f'{reason}. Training continues; vis_data/scalars.json of the log directory has all values')


def guard(backends: dict[str, Any], warn: Callable[[str], None]) -> None:
    """Guards the backends of a visualizer, in place, besides those that write mmengine's own files."""
    for name, backend in backends.items():
        if not isinstance(backend, LocalVisBackend):
            backends[name] = GuardedBackend(_NAMES.get(name, name), backend, warn)


def as_set_outside(entry: Any) -> Any:
    """Returns an entry of `vis_backends` with what variables set for its package, which mmengine would overrule."""
    if not isinstance(entry, Mapping):
        return entry
    kind, given = type_name(entry), os.environ
    if kind == 'MLflowVisBackend':
        return {'name': kind, **entry, 'type': MLflowBackend}
    if kind == 'NeptuneVisBackend' and {'NEPTUNE_API_TOKEN', 'NEPTUNE_PROJECT', 'NEPTUNE_MODE'} & given.keys():
        return {'init_kwargs': {}, **entry}
    if kind == 'WandbVisBackend' and 'WANDB_DIR' in given:
        return {**entry, 'init_kwargs': {'dir': given['WANDB_DIR'], **(entry.get('init_kwargs') or {})}}
    return entry


class MLflowBackend(MLflowVisBackend):
    """mmengine's, which logs to where MLflow was told to, by its variables or in Python, and into a run that is active.

    Without that it is a database in the work directory: MLflow 3 refuses folders, which mmengine names. What MLflow
    raises is not dropped.
    """

    def _init_env(self) -> None:
        import mlflow

        self._mlflow, self._before = mlflow, mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
        folder, begin = Path(self._save_dir).resolve().parents[1], Path(self._save_dir).parent.name
        if not (self._tracking_uri or self._before):
            self._tracking_uri, self._exp_name = f'sqlite:///{folder}/mlflow.db', self._exp_name or folder.name
            self._artifact_location = self._artifact_location or (folder / 'mlflow_artifacts').as_uri()
            self._artifact_suffix = ()  # the files are in the folder
        if self._tracking_uri:
            mlflow.set_tracking_uri(self._tracking_uri)
        experiment = None  # that of MLflow's variables
        if self._exp_name:
            found = mlflow.get_experiment_by_name(self._exp_name)
            experiment = found.experiment_id if found else mlflow.create_experiment(
                self._exp_name, artifact_location=self._artifact_location
            )  # fmt: skip
        self._begins = mlflow.active_run() is None
        if self._begins:
            mlflow.start_run(experiment_id=experiment, run_name=self._run_name or f'{folder.name} {begin}')
        mlflow.set_tags(self._tags or {})
        mlflow.log_params(self._params or {})

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **_: Any) -> None:
        self._mlflow.log_metric(name, value, step)

    @force_init_env
    def add_scalars(self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **_: Any) -> None:
        self._mlflow.log_metrics(scalar_dict, step)

    def close(self) -> None:
        """Sends the files of the work directory, and ends a run that it began."""
        folder = Path(self.cfg.work_dir)
        try:
            for path in folder.rglob('*') if self._artifact_suffix else ():
                if path.name.endswith(self._artifact_suffix):
                    self._mlflow.log_artifact(str(path), os.path.dirname(path.relative_to(folder)) or None)
        finally:
            if self._begins:
                self._mlflow.end_run('FINISHED' if sys.exc_info()[0] is None else 'FAILED')
            if self._tracking_uri:
                self._mlflow.set_tracking_uri(self._before)
