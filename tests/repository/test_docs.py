"""README, docs/ and READMEs of experiments: Python blocks run, commands parse, and names, paths and links exist."""

import argparse
import ast
import configparser
import importlib
import pkgutil
import re
import runpy
import shlex
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from mmdet.utils import register_all_modules
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS

import tokennorm
from tokennorm import norms
from tokennorm.base.published import PUBLISHED
from tokennorm.cli.main import COMMANDS, main
from tokennorm.plan.options import TrainOptions

ROOT = Path(__file__).resolve().parents[2]
PAGES = ['README.md', 'CONTRIBUTING.md', 'AGENTS.md', 'llms.txt']
PAGES += sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ('docs/**/*.md', 'projects/experiments/*/README.md')
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(r'(<!-- not executed[^>]*-->\n)?```(\w+)\n(.*?)```', re.DOTALL)
UPSTREAM = {  # messages on the troubleshooting page that other programs print
    'tokennorm: command not found',
    'libGL.so.1: cannot open shared object file',
    'CUDA out of memory',
    'no kernel image is available for execution on the device',
}
PLACEHOLDERS = dict(CONFIG='retinanet_pvt-mini_fpn_shapes', GPUS='1', N='2', S='320', F='0.2', FIGURE='lambda')


def blocks(language):
    """(page, text) of each fenced block that is to be executed."""
    return [
        pytest.param(page, text, id=f'{page}-{i}')
        for page in PAGES
        for i, (skipped, kind, text) in enumerate(BLOCK.findall((ROOT / page).read_text()))
        if kind == language and not skipped
    ]


def commands():
    """(page, words) of each documented command of ours, lines joined and comments left out."""
    found = []
    for param in blocks('bash'):
        page, text = param.values
        for line in text.replace('\\\n', ' ').splitlines():
            words = shlex.split(line, comments=True)
            if words and (words[0] == 'tokennorm' or re.match(r'tools/\w+\.py$', ' '.join(words[1:2]))):
                found.append(pytest.param(page, words, id=line.strip()[:90]))
    return found


@pytest.mark.parametrize(('page', 'text'), blocks('python'))
def test_python_blocks_run(page, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    if '_base_' in names and "'../_base_" not in text:
        (tmp_path / 'config.py').write_text(text)
        cfg = Config.fromfile(tmp_path / 'config.py')
        cfg.model.backbone.init_cfg = None
        register_all_modules(init_default_scope=False)
        device = 'meta' if 'tokennorm.' in text else 'cpu'  # mmdet's own backbones read numbers off tensors
        with DefaultScope.overwrite_default_scope('mmdet'), torch.device(device):
            MODELS.build(cfg.model)
        return
    values = {}
    exec(text, values)
    backbone = values.get('model', values).get('backbone') if isinstance(values.get('model', values), dict) else None
    if backbone:
        MODELS.build({key: value for key, value in backbone.items() if key != '_delete_'})


def run(words, arguments):
    """Starts the command of a line."""
    if words[0] == 'tokennorm':
        assert words[1] in COMMANDS, f'no subcommand {words[1]}'
        importlib.import_module(f'tokennorm.cli.{words[1]}').main(arguments)
    else:
        runpy.run_path(str(ROOT / words[1]), run_name='__main__')


class Parsed(BaseException):
    """Ends a command after its arguments were parsed."""


@pytest.mark.parametrize(('page', 'words'), commands())
def test_commands_parse_and_their_configs_exist(page, words, monkeypatch):
    parse = argparse.ArgumentParser.parse_args
    seen = {}

    def parse_only(self, *args, **kwargs):
        seen.update(vars(parse(self, *args, **kwargs)))
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, 'parse_args', parse_only)
    words = [PLACEHOLDERS.get(word, word) for word in words]
    arguments = [word for word in words[2:] if not re.fullmatch(r'\[.*\]|\[\w+|\w+\]', word)]
    monkeypatch.setattr(sys, 'argv', words[1:2] + arguments)
    with pytest.raises(Parsed):
        run(words, arguments)
    config = seen.get('config', seen.get('detector'))
    is_file = str(config).endswith(('.onnx', '.pth', '.safetensors'))
    is_detector = str(config).startswith(('work_dirs/', 'WORK_DIR')) or is_file
    if isinstance(config, str) and not (is_detector or config in PUBLISHED):
        tokennorm.config(ROOT / config if config.startswith('configs/') else config)


@pytest.mark.parametrize('page', PAGES)
def test_links_paths_and_names_exist(page):
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r'\]\(((?!https?:)[^)#]+)(?:#[^)]*)?\)', text)]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
    rooms = 'projects|tools|benchmarks|configs|tests|requirements'
    files = re.findall(rf'(?<![\w/])((?:{rooms})/[\w./-]+\.(?:py|sh|yml|txt))', text)
    folders = (ROOT, (ROOT / page).parent)
    assert [name for name in files if not any((folder / name).exists() for folder in folders)] == []
    if page.endswith('changelog.md'):
        return  # names what is gone
    for name in re.findall(r'`tokennorm\.([\w.]+)`', text):
        assert exists(name), f'tokennorm.{name}'


def exists(name):
    """Whether `tokennorm.NAME` is a module, a name in a module or class, or a registered type."""
    with suppress(ImportError, AttributeError):
        pkgutil.resolve_name(f'tokennorm.{name}')
        return True
    from tokennorm import registry

    kinds = [value for value in vars(registry).values() if hasattr(value, 'module_dict') and value.scope == 'tokennorm']
    return any(kind.get(f'tokennorm.{name}') is not None for kind in kinds)


@pytest.mark.parametrize('page', ['docs/project/architecture.md', 'CONTRIBUTING.md', 'AGENTS.md'])
def test_names_of_the_code_exist(page):
    """Names `room.module.name` and paths `room/module.py`, from the folder of the package on."""
    text, package = (ROOT / page).read_text(), ROOT / 'projects' / 'tokennorm'
    rooms = '|'.join(path.parent.name for path in package.glob('*/__init__.py'))
    names = re.findall(rf'`((?:{rooms})(?:\.\w+)+)', text)
    paths = re.findall(rf'`(?:tokennorm/)?((?:{rooms})/[\w/]*(?:\.py)?)`', text)
    gone = [name for name in names if not exists(name)] + [path for path in paths if not (package / path).exists()]
    assert gone == [], f'{page} names what does not exist in projects/tokennorm: write the new name there'


def test_every_norm_is_documented():
    table, api = ((ROOT / 'docs' / page).read_text() for page in ('concepts/normalizers.md', 'reference/api.md'))
    rows = '\n'.join(re.findall(r'^\| (`.*?) \|', table, re.MULTILINE))
    (members,) = re.findall(r'automodule:: tokennorm\.norms\n   :members: (.*)', api)
    names = {cls: {name for name, other in norms.NORMS.items() if other is cls} for cls in norms.NORMS.values()}
    missing = [cls.__name__ for cls, of_cls in names.items() if not any(f'`{name}`' in rows for name in of_cls)]
    assert missing == [], 'docs/concepts/normalizers.md: each needs a row in the table'
    missing = {cls.__name__ for cls in names} - {*members.split(', ')}
    assert missing == set(), 'docs/reference/api.md, Normalizers: add each to `:members:`'


def test_every_option_of_training_is_documented():
    """With what it is for, by a person: a page that is made of `--help` lists all and does not count."""
    pages = [page for page in PAGES if page.startswith('docs/') and not page.endswith('changelog.md')]
    text = '\n'.join((ROOT / page).read_text() for page in pages)
    options = [f'--{one.name.replace("_", "-")}' for one in fields(TrainOptions) if one.name != 'config']
    missing = [option for option in options if not re.search(rf'(?<![\w-]){option}(?![\w-])', text)]
    assert missing == [], 'add each to a page, such as the table of options in docs/get_started/train.md'


def literals():
    """The strings in the package's code, one per line, with gaps for the values in them."""
    for path in ROOT.glob('projects/tokennorm/**/*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield ''.join(part.value if isinstance(part, ast.Constant) else ' ... ' for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_one_sentence_describes_the_project(capsys):
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    sentence = setup['metadata']['description'] + '.'
    main(['--help'])
    texts = {page: (ROOT / page).read_text() for page in ('README.md', 'docs/index.md', 'llms.txt')}
    for name, text in (texts | {'--help': capsys.readouterr().out}).items():
        plain = ' '.join(re.sub(r'\[([^]]*)\]\([^)]*\)|^> ', r'\1', text, flags=re.MULTILINE).split())
        assert sentence in plain, name


def test_troubleshooting_quotes_messages_of_the_code():
    rows = re.findall(r'^`([^`]+)`\n: ', (ROOT / 'docs/guides/troubleshooting.md').read_text(), re.MULTILINE)
    quoted = [row for row in rows if row not in UPSTREAM]
    known = '\n'.join(literals()).replace('`', '')
    fixed_parts = {row: max(re.split(r'\b[A-Z]{1,9}\b', row), key=len).strip() for row in quoted}
    assert len(rows) >= 20
    assert {row: part for row, part in fixed_parts.items() if part not in known} == {}
