"""Long ListOps: nested list operations on digits (Nangia and Bowman, "ListOps", 2018; Tay et al., "Long Range Arena",
2021).

An expression is a digit, or an operator with two or more expressions as arguments:

    [MAX 2 9 [MIN 4 7 ] 0 ]

Long Range Arena draws every node as follows. A node at the largest depth is a digit. Any other node is an operator with
a probability of 0.25, else a digit. Operator, digit and number of arguments are uniform. Expressions outside the range
of lengths are drawn again.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

OPERATOR_PROBABILITY = 0.25
OPERATORS: dict[str, Callable[[list[int]], int]] = {
    '[MAX': max,
    '[MIN': min,
    '[MED': lambda values: int(statistics.median(values)),  # of an even number of values: their mean, rounded down
    '[SM': lambda values: sum(values) % 10,
}
END = ']'
DIGITS = tuple('0123456789')
PADDING, CLASSIFY = '<pad>', '<cls>'
VOCABULARY = (PADDING, CLASSIFY, *DIGITS, *OPERATORS, END)


@dataclass(frozen=True)
class Grammar:
    """Limits of the expressions. The defaults are those of Long Range Arena.

    Args:
        max_depth: Depth of the deepest digits; the whole expression has depth 1.
        max_args: Arguments of an operator, at most.
        min_length: Tokens of an expression, at least. Operators, digits and closing brackets count.
        max_length: Tokens of an expression, at most.

    Raises:
        ValueError: if no expression can fit.
    """

    max_depth: int = 10
    max_args: int = 10
    min_length: int = 501
    max_length: int = 1999

    def __post_init__(self) -> None:
        if self.max_args < 2:
            raise ValueError(f'max_args={self.max_args} must be at least 2')
        longest = 1
        for _ in range(self.max_depth - 1):
            longest = 2 + self.max_args * longest
        if not 1 <= self.min_length <= min(self.max_length, longest):
            raise ValueError(
                f'min_length={self.min_length} must be from 1 to max_length={self.max_length}, and to {longest}, the '
                f'longest expression of max_depth={self.max_depth} and max_args={self.max_args}'
            )

    def draw(self, random_numbers: random.Random) -> list[str]:
        """Draws the tokens of one expression."""
        while True:
            tokens: list[str] = []
            if self._extend(tokens, random_numbers, 1) and len(tokens) >= self.min_length:
                return tokens

    def _extend(self, tokens: list[str], random_numbers: random.Random, depth: int) -> bool:
        """Appends one expression; False as soon as it is too long."""
        if depth >= self.max_depth or random_numbers.random() >= OPERATOR_PROBABILITY:
            tokens.append(random_numbers.choice(DIGITS))
            return len(tokens) <= self.max_length
        tokens.append(random_numbers.choice(tuple(OPERATORS)))
        for _ in range(random_numbers.randint(2, self.max_args)):
            if not self._extend(tokens, random_numbers, depth + 1):
                return False
        tokens.append(END)
        return len(tokens) <= self.max_length


def examples(grammar: Grammar, seed: int) -> Iterator[tuple[list[str], int]]:
    """Yields different expressions and their values, the same for the same seed.

    Raises:
        ValueError: if 10,000 draws in a row repeat expressions.
    """
    random_numbers = random.Random(seed)
    seen: set[str] = set()
    repeats = 0
    while repeats < 10_000:
        tokens = grammar.draw(random_numbers)
        repeats += 1
        if (text := ' '.join(tokens)) not in seen:
            seen.add(text)
            repeats = 0
            yield tokens, evaluate(tokens)
    raise ValueError(f'the grammar gives no more than about {len(seen)} expressions: allow longer or deeper ones')


def evaluate(tokens: Sequence[str]) -> int:
    """Returns the value of an expression, 0 to 9.

    Raises:
        ValueError: for tokens that are not one expression, with the place.
    """
    open_lists: list[tuple[str, list[int]]] = [('', [])]
    for place, token in enumerate(tokens):
        if token in OPERATORS:
            open_lists.append((token, []))
        elif token in DIGITS:
            open_lists[-1][1].append(int(token))
        elif token == END and len(open_lists) > 1 and open_lists[-1][1]:
            operator, values = open_lists.pop()
            open_lists[-1][1].append(OPERATORS[operator](values))
        else:
            raise ValueError(f'token {place}, {token!r}, does not continue an expression: {" ".join(tokens)[:80]}')
    if len(open_lists) > 1 or len(open_lists[0][1]) != 1:
        raise ValueError(f'the tokens must be one complete expression: {" ".join(tokens)[:80]}')
    return open_lists[0][1][0]
