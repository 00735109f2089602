"""Contents of COCO files."""

import json


def edit(root, split, change):
    """Applies `change` to the content of an annotation file."""
    path = root / 'annotations' / f'{split}.json'
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return content
