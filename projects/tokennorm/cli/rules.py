"""Lists the rules by which data, configs and checkpoints are judged, or explains one.

examples:
  tokennorm rules
  tokennorm rules bbox-as-corners
"""

from dataclasses import asdict

from tokennorm.base.console import say
from tokennorm.base.messages import UserError, did_you_mean
from tokennorm.cli.command import Parser, add_json, command, print_json
from tokennorm.engine import rules  # noqa: F401  # registers all
from tokennorm.findings import RULES, Rule, rules_about

GROUPS = {'Data': ('data', 'masks'), 'Configs and checkpoints': ('config', 'checkpoint')}


def build_parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument('code', nargs='?', metavar='CODE', help='the rule to explain')
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    if args.code not in (None, *RULES):
        raise UserError(f'there is no rule {args.code!r}{did_you_mean(args.code, RULES)}; `tokennorm rules` lists them')
    chosen = [RULES[args.code]] if args.code else [rule for topics in GROUPS.values() for rule in rules_about(*topics)]
    if args.json:
        print_json([asdict(rule) for rule in chosen])
    elif args.code:
        say(page(chosen[0]).replace('**', '').replace('`', ''))
    else:
        width = max(map(len, RULES))
        say('\n'.join(f'{rule.code:{width}}  {rule.severity:7}  {rule.summary}' for rule in chosen))


def page(rule: Rule) -> str:
    """Returns the page of a rule, in Markdown, as the page of rules has it below its heading."""
    way_past = f'`--allow {rule.code}` {"makes it a warning" if rule.severity == "error" else "silences it"}.'
    if rule.changes:
        way_past = f'With `--allow {rule.code}` the data is read as it is written.'
    if not rule.can_allow:
        way_past = 'It cannot be allowed.'
    masks = ' It matters only to models that learn masks.' if rule.about == 'masks' else ''
    return f'**{rule.severity}**: {rule.summary}.\n\n{rule.why}{masks} {rule.do}. {way_past}'
