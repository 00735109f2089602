"""The names that mmcv asks for, the error of those that are not implemented, and which operators run."""

import ast
import inspect
from pathlib import Path

import mmcv
import mmcv_ops
import pytest
import torch
import torchvision
from conftest import compiled_ext
from mmcv_ops import ext


def names_of_mmcv():
    """Returns the names in all calls of `load_ext` in mmcv's sources."""
    calls = [
        node
        for file in Path(mmcv.__file__).parent.rglob('*.py')
        for node in ast.walk(ast.parse(file.read_text(encoding='utf-8')))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == 'load_ext'
    ]
    return sorted({name for call in calls for name in ast.literal_eval(call.args[1])})


def test_every_name_exists():
    names = names_of_mmcv()
    assert len(names) >= 112  # of mmcv 2.1.0
    assert all(callable(getattr(ext, name)) for name in names)
    assert {name for name in ext.__all__ if name != 'MMCV_OPS'} <= set(names) | {'line_nms_forward'}  # not in mmcv-lite


@pytest.mark.parametrize('name', ['ball_query_forward', 'hard_voxelize_forward', 'an_operator_of_a_future_version'])
def test_missing_operator_is_named(name):
    with pytest.raises(NotImplementedError, match=f'^{name}: .* compiled operators'):
        getattr(ext, name)(1, 2, key=3)
    with pytest.raises(AttributeError):
        getattr(ext, '__path__')  # noqa: B009


def test_signatures_match_compiled():
    """mmcv passes keywords: the compiled signatures are in the docstrings."""
    compiled = compiled_ext()
    if compiled is None:
        pytest.skip('this mmcv has no compiled operators')
    for name in ext.__all__:
        if name.startswith(('MMCV', 'get_')):
            continue
        text = getattr(compiled, name).__doc__
        expected = [part.split(':')[0].strip() for part in text[text.index('(') + 1 : text.rindex(') ->')].split(', ')]
        assert len(inspect.signature(getattr(ext, name)).parameters) == len(expected), (name, expected)


def test_running():
    line = mmcv_ops.running()
    if compiled_ext():
        assert line.startswith(f'compiled mmcv {mmcv.__version__} (')
    else:
        assert line.startswith(f'mmcv_ops {mmcv_ops.__version__} (torchvision {torchvision.__version__}, ')


def test_versions_for_bug_reports(ops):
    assert ops.get_compiler_version() == (
        f'none: mmcv_ops {mmcv_ops.__version__}, operators of torchvision {torchvision.__version__}'
    )
    assert ops.get_compiling_cuda_version() == (torch.version.cuda or 'not available')
