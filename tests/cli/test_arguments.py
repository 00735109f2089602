"""Arguments that several commands share."""

from tests.helpers.commands import as_dict


def test_options_may_have_dicts():
    options = as_dict(["a.b=[{'type': 'X', 'k': (1, 2)}]", 'c=0.5', "d={'_delete_': True}"])
    assert options == {'a.b': [dict(type='X', k=(1, 2))], 'c': 0.5, 'd': dict(_delete_=True)}
