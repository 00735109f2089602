"""Python names that moved or went in versions 1.2 and 1.3. Old ones give the new ones with a warning, until 1.4."""

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PLAN = ('options', 'recipe', 'data', 'schedule', 'epochs', 'initial_weights', 'augmentation')
MODULES = {  # below `tokennorm`: the former and the present place
    **{f'engine.{name}': f'plan.{name}' for name in _PLAN},
    **{name: f'base.{name}' for name in ('console', 'environment', 'fast_imports', 'files', 'messages', 'ranks')},
    **{name: f'images.{name}' for name in ('drawing', 'padding', 'pixels')},
    **{name: f'models.{name}' for name in ('data_preprocessors', 'necks', 'registered')},
    'builder': 'layers.building',
    'compat': 'registry.compat',
    'detectors': 'models.masked_detectors',
    'optim': 'models.layer_decay',
    'published': 'base.published',
    'config.image_size': 'plan.image_size',
    'datasets.anchor_fit': 'plan.anchor_fit',
    'inference.opening': 'commands.open_detector',
    'engine.class_rows': 'engine.class_layers',
    'report.compare': 'report.comparison',
    'engine.rules.data': 'engine.rules.datasets_and_loaders',
    'engine.rules.training': 'engine.rules.hooks_and_schedules',
    'commands.detector': 'commands.open_detector',
    'export.detector': 'export.whole_detector',
    'inference.detector': 'inference.torch_detector',
    'config.detectors': 'config.detector_files',
    'datasets.drawing': 'datasets.contact_sheet',
    'checkpoints.finding': 'checkpoints.locating',
    'datasets.finding': 'datasets.discovery',
    'replace.masks': 'replace.token_masks',
    'datasets.coco.rules': 'datasets.coco.annotation_rules',
    'engine.resume.schedule': 'engine.resume.resumed_schedule',
    'checkpoints.reading': 'checkpoints.safe_reading',
    'checkpoints.writing': 'checkpoints.publication',
    'config.reading': 'config.open_config',
}
NAMES = {  # whose module stays, or went elsewhere
    **{f'environment.{name}': 'base.cores' for name in ('available_cores', 'container_cores', 'limit_threads')},
    'config.image_size.use_trained_size': 'plan.trained',
    'config.image_size.use_trained_anchors': 'plan.trained',
    'engine.data.note_sizes': 'plan.trained',
    'engine.training.train': 'commands.train',
    'engine.training.TrainingResult': 'commands.train',
}
GONE = {  # and what there is instead
    'SaturationHook': 'a forward hook of torch on DynamicTanh',
    'engine.checks': 'tokennorm.engine.rules: verify(phase, Built.of(runner, splits))',
    'engine.recipe.open_config': 'tokennorm.plan.recipe.open_plan, whose `cfg` it was',
}


def former_names(module: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module, former or present."""
    place = module.removeprefix('tokennorm').lstrip('.')

    def get(name: str) -> Any:
        old = f'{place}.{name}'.lstrip('.')
        if text := GONE.get(old):
            raise ImportError(f'tokennorm.{old} is gone; instead: {text}', name=module)
        if old in MODULES:
            return import_module(f'tokennorm.{old}')
        new = NAMES.get(old) or MODULES.get(place)
        if new is None or name.startswith('__'):
            raise AttributeError(f'module {module!r} has no attribute {name!r}')
        value = getattr(import_module(f'tokennorm.{new}'), name)
        warnings.warn(f'tokennorm.{old} is tokennorm.{new}.{name} now', DeprecationWarning, stacklevel=2)
        return value

    return get


class FormerModules:
    """Finds the former modules after all other finders. Each is empty until one of its names is used.

    None is in `sys.modules` before it is imported: pickle asks all modules there for a name.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        place = name.removeprefix('tokennorm.')
        if place in GONE:
            raise ImportError(f'{name} is gone; instead: {GONE[place]}', name=name)
        return ModuleSpec(name, FormerModules) if place in MODULES else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name, 'Moved.')

    @staticmethod
    def exec_module(module: Any) -> None:
        module.__getattr__ = former_names(module.__name__)
