"""Rules: one row per judgement, with its code and its page."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal['error', 'warning', 'note']
About = Literal['data', 'masks', 'config', 'checkpoint']


@dataclass(frozen=True)
class Rule:
    """One judgement of the program.

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
        changes: The input is read in another way than it is written. Allowed, it is read as it is written.
    """

    code: str
    severity: Severity
    summary: str
    why: str
    do: str
    about: About = 'data'
    can_allow: bool = True
    changes: bool = False
