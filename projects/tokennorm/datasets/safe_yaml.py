"""Refuses YAML whose anchors repeat each other, before it is read: 300 bytes of them may expand to gigabytes."""

import yaml

_MOST_REPEATED = 100_000  # entries that aliases expand to; a list of classes that two keys share has thousands


def check_aliases(text: str) -> None:
    """Raises `yaml.YAMLError` if the aliases of a text expand to too many entries, or to what they are in.

    Nodes are counted as they would be written out, which takes no time: each anchor is counted once.
    """
    if '*' not in text:
        return
    root, sizes = yaml.compose(text, yaml.SafeLoader), {}

    def size_of(node: yaml.Node | None) -> int:
        if id(node) in sizes:
            if sizes[id(node)] == 0:
                raise yaml.YAMLError('an anchor contains itself')
            return sizes[id(node)]
        sizes[id(node)], total = 0, 1
        for child in node.value if isinstance(node, yaml.CollectionNode) else ():
            total += sum(map(size_of, child)) if isinstance(child, tuple) else size_of(child)
        sizes[id(node)] = total
        return total

    if (repeated := size_of(root) - len(sizes)) > _MOST_REPEATED:
        raise yaml.YAMLError(f'its anchors expand to {repeated:.0e} more entries than are written')
