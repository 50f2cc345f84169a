"""Opens a saved model, whichever detector wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from astray.model.file import ModelFile
from astray.model.packing import FilePath, unpack
from astray.model.store import MODEL

if TYPE_CHECKING:
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector


def load(path: FilePath) -> IRLDetector | FleetDetector:
    """Opens a saved model. It scores at once, and needs the training library only to go on learning.

    Agents of a fleet are read from the file when they are asked for, and no others.

    Parameters
    ----------
    path
        A file that :meth:`IRLDetector.save` or :meth:`FleetDetector.save` wrote.

    Raises
    ------
    ModelFileError
        If the file is not whole, not a model, or of another version.
    """
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector

    file = ModelFile.open(path)
    model = unpack(file.shared(MODEL), file.name)
    if model.kind == FleetDetector.KIND:
        return FleetDetector.from_store(file)
    if model.kind != IRLDetector.KIND:
        raise model.wrong(f"a model of the unknown kind {model.kind!r}")
    file.close()
    with model.fitting_together():
        return IRLDetector.from_file(model)
