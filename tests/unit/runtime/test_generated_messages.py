"""The message classes are those of the .proto files beside them."""

from pathlib import Path

import pytest

from tools.protobuf import FOLDERS, ROOT, generate


@pytest.mark.parametrize("folder", FOLDERS)
def test_generating_again_changes_nothing(folder: str, tmp_path: Path) -> None:
    made = generate(folder, tmp_path)
    assert len(made) == 2 * len(list((ROOT / folder).glob("*.proto")))
    for path in made:
        assert path.read_text() == (ROOT / folder / path.name).read_text(), "run `make generate`"
