"""Writes the train, val and test files of ListOps: `python projects/experiments/listops/make_data.py data/listops`

The defaults are those of Long Range Arena. All expressions are different.
"""

import argparse
from itertools import islice
from pathlib import Path

from experiments.listops.dataset import write_examples
from experiments.listops.grammar import Grammar, examples
from tokennorm.base.messages import user_errors
from tokennorm.cli.command import command


@command
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out', type=Path, help='folder for basic_train.tsv, basic_val.tsv and basic_test.tsv')
    parser.add_argument('--train', type=int, default=96000, metavar='N', help='training expressions (96000)')
    parser.add_argument('--val', type=int, default=2000, metavar='N', help='validation expressions (2000)')
    parser.add_argument('--test', type=int, default=2000, metavar='N', help='test expressions (2000)')
    parser.add_argument('--max-depth', type=int, default=10, metavar='N', help='depth of the deepest digits (10)')
    parser.add_argument('--max-args', type=int, default=10, metavar='N', help='arguments of an operator, at most (10)')
    parser.add_argument('--min-length', type=int, default=501, metavar='N', help='tokens, at least (501)')
    parser.add_argument('--max-length', type=int, default=1999, metavar='N', help='tokens, at most (1999)')
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args(argv)
    with user_errors(ValueError):
        grammar = Grammar(args.max_depth, args.max_args, args.min_length, args.max_length)
    args.out.mkdir(parents=True, exist_ok=True)
    drawn = examples(grammar, args.seed)
    for split in ('train', 'val', 'test'):
        with user_errors(ValueError):
            part = list(islice(drawn, getattr(args, split)))
        write_examples(args.out / f'basic_{split}.tsv', part)
        values = [value for _, value in part]
        majority = max(set(values), key=values.count)
        tokens = sum(len(words) for words, _ in part) / len(part)
        print(
            f'{split}: {len(part)} expressions of {tokens:.0f} tokens on average; the most frequent value is '
            f'{majority}, {values.count(majority) / len(values):.1%}'
        )


if __name__ == '__main__':
    main()
