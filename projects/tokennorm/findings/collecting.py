"""Findings of a command: collected while it judges, and shown or refused together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from tokennorm.base.messages import UserError, did_you_mean, findings_of_command, shorten
from tokennorm.base.ranks import print_once
from tokennorm.findings.data_rules import DATA_RULES
from tokennorm.findings.rule import Rule, Severity
from tokennorm.findings.training_rules import TRAINING_RULES

RULES: dict[str, Rule] = {rule.code: rule for rule in (*DATA_RULES, *TRAINING_RULES)}
MOST_ITEMS = 5  # in a line


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
        text = ': '.join(filter(None, (self.where, self.text, list_items(self.items))))
        if self.severity != 'error':
            return f'{text} [{self.code}]'
        way_past = f'; if it is right: --allow {self.code}' if self.rule.can_allow else ''
        return f'{text}. {self.rule.do} [{self.code}{way_past}]'

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields that `--json` prints."""
        return dict(code=self.code, severity=self.severity, where=self.where, text=self.text, items=list(self.items))


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
        """Adds codes to those that are allowed, such as those of a written config, also for findings so far."""
        codes = [codes] if isinstance(codes, str) else list(codes)
        for code in codes:
            if code not in RULES:
                raise UserError(
                    f'--allow {code}: there is no such rule{did_you_mean(code, RULES)}; `tokennorm rules` lists them'
                )
            if not RULES[code].can_allow:
                raise UserError(f'--allow {code}: this rule cannot be allowed; `tokennorm rules {code}` says why')
        for code, severity, where, text in [key for key in self._items if key[0] in set(codes) - self.allowed]:
            items = self._items.pop((code, severity, where, text))
            if RULES[code].severity == 'error' and not RULES[code].changes:
                self._items[code, 'warning', where, text] = items
        self.allowed |= set(codes)

    def add(self, code: str, where: str = '', text: str = '', items: Iterable[str] = ()) -> bool:
        """Adds what a rule found, and returns whether the rule is in force: not allowed.

        The text is by default the summary of the rule. Items of one rule, place and text are one finding.
        """
        rule, severity = RULES[code], RULES[code].severity
        is_allowed = code in self.allowed
        if is_allowed:
            severity = 'warning'
        elif self.strict and severity == 'warning':
            severity = 'error'
        if not is_allowed or (rule.severity == 'error' and not rule.changes):
            self._items.setdefault((code, severity, where, text or rule.summary), []).extend(map(str, items))
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

    def forget(self) -> None:
        """Drops all findings so far, as of data that is read again."""
        self._items.clear()

    def skip(self) -> None:
        """Regards all findings so far as printed."""
        self._shown |= set(self)

    def stop(self, before: str = '') -> None:
        """Raises `Refusal` if there are errors."""
        if errors := self.of('error'):
            raise Refusal(errors, before)


@contextmanager
def judging(findings: Findings) -> Iterator[Findings]:
    """Makes `reports` add to these findings within the context, as `warnings.catch_warnings` does with warnings."""
    token = findings_of_command.set(findings)
    try:
        yield findings
    finally:
        findings_of_command.reset(token)


@contextmanager
def collected() -> Iterator[Findings]:
    """The findings of the command that runs. Outside of any command they are shown, and errors raised, in the end."""
    if (of_command := findings_of_command.get()) is not None:
        yield of_command
        return
    with judging(Findings()) as findings:
        yield findings
        findings.show()
        findings.stop()


def current() -> Findings:
    """Returns the findings of the command that runs, none outside of any command."""
    of_command = findings_of_command.get()
    return Findings() if of_command is None else of_command


def reports(code: str, where: str = '', text: str = '', items: Iterable[str] = ()) -> bool:
    """`Findings.add` of the command that runs; outside of any command it is shown, or an error raised, at once."""
    with collected() as findings:
        return findings.add(code, where, text, items)


def refuse(code: str, text: str = '', where: str = '') -> NoReturn:
    """Raises a finding at once where nothing sensible can follow; its rule cannot be allowed."""
    raise Refusal([Finding(code, 'error', where, text or RULES[code].summary)])


def list_items(items: Sequence[str]) -> str:
    """The count if there are several, with the first few and how many more in parentheses."""
    return f'{len(items)} ({shorten(items, MOST_ITEMS)})' if len(items) > 1 else shorten(items)
