"""Unexpected errors: whether this package's code raised them, or what it called, such as the user's model."""

import re
import sysconfig
import traceback
from pathlib import Path

import tokennorm
from tokennorm.base.environment import OPTIONAL

_REPORT = 'this is a fault of TokenNorm, not of yours; please report it with the command and the lines above'
_TOOLS = {'torch', 'torchvision', 'numpy', 'PIL', 'cv2', 'scipy', 'einops', 'pycocotools', *OPTIONAL}  # of any caller
_PACKAGE, _STANDARD = Path(tokennorm.__file__).parent, Path(sysconfig.get_path('stdlib'))
_TOO_SMALL = 'the images may be too small for this model: a larger --image-size, or fewer levels or queries'
_ONE_IMAGE = (
    'a batch of one image is too little for this model: another --batch-size, 2 or more, that leaves no single image '
    'at the end of an epoch, or train_dataloader.drop_last=True'
)
_WAYS_OUT = {  # of errors of models, by a part of their text
    'selected index k out of range': _TOO_SMALL,
    "Kernel size can't be greater than actual input size": _TOO_SMALL,
    'Output size is too small': _TOO_SMALL,
    'Expected more than 1 value per channel when training': _ONE_IMAGE,
}


def way_out(error: BaseException) -> str:
    """Returns the line of an error of the user's model with what to do; '' if that is not known."""
    hint = next((hint for part, hint in _WAYS_OUT.items() if part in str(error)), '')
    return f'{raised_by(error)}; {hint}' if hint and raised_by(error) else ''


def verdict(error: BaseException) -> str:
    """Returns the last line for an unexpected error: who raised it, or that it is a fault of this package."""
    return raised_by(error) or _REPORT


def raised_by(error: BaseException) -> str:
    """Returns an error in one line with the component that raised it; '' for this package.

    It is that of the innermost call, without the standard library and tools such as PyTorch, whose errors are their
    caller's. So a model, a logger or a transform that this package has called is named itself.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    frames += re.findall(r'File "(.+?)", line (\d+)', str(error))  # of a data worker, whose traceback is its message
    for file, line in reversed(frames):
        place = _place(Path(file))
        if place == tokennorm.__name__:
            break
        if place:
            lines = str(error).strip().splitlines() or ['']
            text = lines[-1].strip() if len(lines) > 1 and 'Caught ' in lines[0] else lines[0]
            return f'{type(error).__name__}: {text}: raised by {place}, line {line}, not by TokenNorm'
    return ''


def _place(file: Path) -> str:
    """Returns the component of a source file, with the file; '' for tools and the standard library."""
    if file.is_relative_to(_PACKAGE):
        return tokennorm.__name__
    inside = next((i for i, part in enumerate(file.parts) if part in ('site-packages', 'dist-packages')), None)
    if inside is not None:
        package = file.parts[inside + 1].removesuffix('.py')
        return '' if package in _TOOLS else f'{package} ({"/".join(file.parts[inside + 1 :])})'
    return '' if str(file).startswith('<') or file.is_relative_to(_STANDARD) else str(file)
