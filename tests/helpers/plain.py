"""Files of a run without their layout, which takes longer than a step of a toy model."""

import io
from contextlib import contextmanager

import pytest


@contextmanager
def plain_config():
    """Leaves out that yapf lays out the config in each checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('yapf.yapflib.yapf_api.FormatCode', lambda text, **_: (text, True))
        yield


@contextmanager
def plain_figures():
    """Leaves out that matplotlib lays out and writes the figures of a report, which the tests of figures look at."""
    from matplotlib.figure import Figure

    save = Figure.savefig

    def savefig(figure, file, **settings):
        return file.write('<svg></svg>') if isinstance(file, io.StringIO) else save(figure, file, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, 'savefig', savefig)
        yield
