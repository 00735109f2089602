"""The command `tokennorm`: finds the module of a subcommand, and imports no other."""

import sys
from importlib import import_module

from tokennorm.base.console import say
from tokennorm.base.messages import UserError, did_you_mean
from tokennorm.cli.command import command
from tokennorm.version import __version__

COMMANDS = dict(
    train='train a detector or a classifier',
    test='evaluate a checkpoint',
    predict='detect objects in images or in a video',
    check='check a dataset or a config before training',
    audit='list likely label errors, and write them for CVAT, Label Studio and FiftyOne',
    rules='list the rules by which data and configs are judged, or explain one',
    split='divide a dataset into train and val',
    configs='list the configs of this package',
    weights='list the detectors trained on COCO that can be used by name',
    export='write a detector as an ONNX, PyTorch or OpenVINO file',
    benchmark='compare AP, time and size of exported files with PyTorch',
    compare='compare two training runs on one page',
    publish='make a checkpoint small and safe to share',
)
SYNONYMS = dict(val='test', eval='test', evaluate='test', detect='predict', inference='predict')  # of other programs


def main(argv: list[str] | None = None) -> None:
    """Runs a subcommand."""
    words = sys.argv[1:] if argv is None else argv
    name = words[0] if words else '--help'
    if name in ('-h', '--help', '--version'):
        _print_help(words)
    elif name == '--completion':
        _print_completion(words[1:])
    elif name in COMMANDS:
        sys.argv[0] = f'tokennorm {name}'  # the name of the program in --help and in usage errors
        _import([name])
        import_module(f'tokennorm.cli.{name}').main(words[1:])
    else:
        meant = f' (did you mean {SYNONYMS[name]}?)' if name in SYNONYMS else did_you_mean(name, COMMANDS)
        raise SystemExit(f'error: no subcommand {name!r}{meant}. `tokennorm --help` lists them')


@command
def _import(argv: list[str]) -> None:
    """Imports a subcommand, which takes seconds in which the user may press Ctrl+C."""
    import_module(f'tokennorm.cli.{argv[0]}')


@command
def _print_completion(argv: list[str]) -> None:
    from tokennorm.cli.completion import completion

    if argv not in (['bash'], ['zsh'], ['fish']):
        raise UserError(f'--completion {" ".join(argv)}: expected bash, zsh or fish')
    say(completion(argv[0], COMMANDS))


@command
def _print_help(argv: list[str]) -> None:
    if argv[:1] == ['--version']:
        say(f'tokennorm {__version__}')
        return
    lines = '\n'.join(f'  {name:<12}{text}' for name, text in COMMANDS.items())
    say(f"""usage: tokennorm SUBCOMMAND [ARGUMENTS]

PVT, PVTv2, Swin and ViT backbones for MMDetection with Dynamic Token Normalization (DTN) and Dual PatchNorm, and a
program that trains, checks and exports detectors with them or with any mmdet config.

subcommands (`tokennorm SUBCOMMAND --help` lists the arguments):
{lines}

examples:
  tokennorm train --data DIR --out WORK_DIR
  tokennorm predict WORK_DIR IMAGES
  tokennorm --completion bash    # or zsh, fish: completes words of these commands; needs the package shtab""")
