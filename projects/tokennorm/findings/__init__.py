"""Findings: what the program thinks of the user's data, config and checkpoints, each made by a rule with a code.

    with judging(Findings(allow=['bbox-as-corners'])) as found:
        ...                # anywhere below: ZERO_INSTANCE_CATEGORY.report('train', items=['bus'])
    found.stop()           # raises `Refusal`, a `UserError`, if there are errors

A rule is declared where it is judged: by the decorator `@rule(...)` above the function that looks at data, a config or
what was built from it, or as an object `NAME = Rule(...)` in the module that finds it on the way, such as a reader.
What an argument of a Python call gets wrong is not a finding but an exception.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from tokennorm.base.messages import UserError, did_you_mean, shorten
from tokennorm.base.ranks import print_once

Severity = Literal['error', 'warning', 'note']
About = Literal['data', 'masks', 'config', 'checkpoint']
Judge = TypeVar('Judge', bound=Callable[..., Any])
MOST_ITEMS = 5  # in a line


@dataclass(frozen=True, eq=False)
class Rule:
    """One judgement of the program. It registers itself in `RULES`.

    Args:
        code: Its name, in lower case with hyphens; stable between versions. Where `healthcheck` of hotcoco finds the
            same, it is hotcoco's code.
        severity: 'error' stops the command, 'warning' does not. 'note' says what was read in another way than it is
            written.
        summary: What is the case. It begins the printed line, unless the finding has a text of its own.
        why: Why it matters, on the rule's page.
        do: What to do. It ends the printed line of an error.
        about: 'masks' matters only to a model that learns masks.
        can_allow: Whether `--allow` may overrule the rule; not where nothing could be trained or read then.
        changes: The input is read in another way than it is written, with a warning or a note. Allowed, it is read as
            it is written.
    """

    code: str
    severity: Severity
    summary: str
    why: str
    do: str
    about: About = 'data'
    can_allow: bool = True
    changes: bool = False

    def __post_init__(self) -> None:
        if RULES.setdefault(self.code, self) is not self:
            raise ValueError(f'there are two rules {self.code}')

    def report(self, where: str = '', text: str = '', items: Iterable[str] = ()) -> bool:
        """`Findings.add` of the command that runs; outside of any command it is shown, or an error raised, at once."""
        with collected() as findings:
            return findings.add(self, where, text, items)

    def report_items(self, where: str, items: Iterable[str]) -> None:
        """Reports what is affected, if anything is."""
        if items := list(items):
            self.report(where, items=items)

    def refuse(self, where: str, text: str) -> NoReturn:
        """Raises a finding at once where nothing sensible can follow; the rule cannot be allowed."""
        raise Refusal([Finding(self.code, 'error', where, text)])

    def judged(self, on: str) -> Callable[[Judge], Judge]:
        """Registers a function as one that finds what the rule is about, of the inputs that `on` names."""

        def register(judge: Judge) -> Judge:
            JUDGEMENTS[on].append((self, judge))
            return judge

        return register


#: The rules of all modules that were imported, by code; `tokennorm.engine.rules` imports every one that has some.
RULES: dict[str, Rule] = {}
#: Functions that judge, by what they look at, each with its rule.
JUDGEMENTS: dict[str, list[tuple[Rule, Callable[..., Any]]]] = defaultdict(list)


def rule(code: str, severity: Severity, summary: str, *, on: str, **texts: Any) -> Callable[[Judge], Judge]:
    """Makes the function below it the judgement of a new `Rule`."""
    return Rule(code, severity, summary, **texts).judged(on)


def rules_about(*topics: About) -> list[Rule]:
    """Returns the rules about one of these topics, by code."""
    return sorted((one for one in RULES.values() if one.about in topics), key=lambda one: one.code)


@dataclass(frozen=True)
class Finding:
    """A fault that one rule found.

    Args:
        code: The code of the rule.
        severity: That of the rule, or what `--allow` and `--strict` made of it.
        where: The split, file or entry of the config that it is about.
        text: What is the case.
        items: Names of what is affected, all of them.
    """

    code: str
    severity: Severity
    where: str
    text: str
    items: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """The rule that made it."""
        return RULES[self.code]

    def __str__(self) -> str:
        items = shorten(self.items, MOST_ITEMS)
        items = f'{len(self.items)} ({items})' if len(self.items) > 1 else items
        text = ': '.join(filter(None, (self.where, self.text, items)))
        if self.severity != 'error':
            return f'{text} [{self.code}]'
        way_past = f'; if it is right: --allow {self.code}' if self.rule.can_allow else ''
        return f'{text}. {self.rule.do} [{self.code}{way_past}]'


class Refusal(UserError):
    """Findings that stop a command.

    Args:
        findings: The errors.
        before: A text that precedes theirs, where they were printed already.
    """

    def __init__(self, findings: Sequence[Finding], before: str = '') -> None:
        super().__init__(before or '\n'.join(map(str, findings)))
        self.findings = tuple(findings)


class Findings:
    """Collects the findings of a command.

    Args:
        allow: Codes of rules that are overruled. Allowed errors are warnings, allowed warnings and notes are silent.
            What an allowed rule would change stays as it is written.
        strict: Warnings are errors.
        masks: Masks are learned. Otherwise what matters to them only is kept, but neither printed nor an error.

    Raises:
        UserError: for a code that does not exist, or whose rule cannot be allowed.
    """

    def __init__(self, allow: Iterable[str] = (), strict: bool = False, masks: bool = False) -> None:
        self.strict, self.masks = strict, masks
        self.allowed: frozenset[str] = frozenset()
        self._items: dict[tuple[str, Severity, str, str], list[str]] = {}
        self._shown: set[Finding] = set()
        self.allow(allow)

    def allow(self, codes: Iterable[str]) -> None:
        """Adds codes to those that are allowed, such as those of a written config, for what is found from now on."""
        codes = [codes] if isinstance(codes, str) else list(codes)
        for code in codes:
            if code not in RULES:
                raise UserError(
                    f'--allow {code}: there is no such rule{did_you_mean(code, RULES)}; `tokennorm rules` lists them'
                )
            if not RULES[code].can_allow:
                raise UserError(f'--allow {code}: this rule cannot be allowed; `tokennorm rules {code}` says why')
        self.allowed |= set(codes)

    def add(self, rule: Rule, where: str = '', text: str = '', items: Iterable[str] = ()) -> bool:
        """Adds what a rule found, and returns whether the rule is in force: not allowed.

        The text is by default the summary of the rule. Items of one rule, place and text are one finding.
        """
        is_allowed, severity = rule.code in self.allowed, rule.severity
        if is_allowed:
            severity = 'warning'
        elif self.strict and severity == 'warning':
            severity = 'error'
        if not is_allowed or rule.severity == 'error':
            self._items.setdefault((rule.code, severity, where, text or rule.summary), []).extend(map(str, items))
        return not is_allowed

    def __iter__(self) -> Iterator[Finding]:
        return (Finding(*key, tuple(items)) for key, items in self._items.items())

    def counts(self, finding: Finding) -> bool:
        """Returns whether a finding matters to the command."""
        return self.masks or finding.rule.about != 'masks'

    def of(self, severity: Severity) -> list[Finding]:
        """Returns the findings of a severity that matter."""
        return [finding for finding in self if finding.severity == severity and self.counts(finding)]

    def text(self) -> str:
        """Returns all findings that matter, errors first, one line each."""
        prefixes: Mapping[Severity, str] = {'error': 'ERROR', 'warning': 'warning', 'note': 'note'}
        return '\n'.join(f'{prefixes[severity]}: {line}' for severity in prefixes for line in self.of(severity))

    def show(self) -> None:
        """Prints the warnings and notes that were not printed yet, in rank 0."""
        new = [finding for finding in self if finding not in self._shown and self.counts(finding)]
        self.skip()
        print_once(*(f'{finding.severity}: {finding}' for finding in new if finding.severity != 'error'))

    def skip(self) -> None:
        """Regards all findings so far as printed."""
        self._shown |= set(self)

    def stop(self, before: str = '') -> None:
        """Raises `Refusal` if there are errors."""
        if errors := self.of('error'):
            raise Refusal(errors, before)


_OF_COMMAND: ContextVar[Findings | None] = ContextVar('findings', default=None)


@contextmanager
def judging(findings: Findings) -> Iterator[Findings]:
    """Makes rules report to these findings within the context, as `warnings.catch_warnings` does with warnings."""
    token = _OF_COMMAND.set(findings)
    try:
        yield findings
    finally:
        _OF_COMMAND.reset(token)


@contextmanager
def collected() -> Iterator[Findings]:
    """The findings of the command that runs. Outside of any command they are shown, and errors raised, in the end."""
    if (of_command := _OF_COMMAND.get()) is not None:
        yield of_command
        return
    with judging(Findings()) as findings:
        yield findings
        findings.show()
        findings.stop()


def is_judged() -> bool:
    """Returns whether a command collects findings."""
    return _OF_COMMAND.get() is not None


def current() -> Findings:
    """Returns the findings of the command that runs, none outside of any command."""
    return _OF_COMMAND.get() or Findings()
