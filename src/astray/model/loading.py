"""Opening a model that was saved, whatever kind of detector it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from astray.model.container import FilePath, read
from astray.model.fleet_file import FleetFile

if TYPE_CHECKING:
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector


def load(path: FilePath) -> IRLDetector | FleetDetector:
    """Open a model that was saved; it scores at once, and needs the training library only to go on learning.

    Of a fleet only those agents are read that are asked for, when they are. A fleet in the one-file format of earlier
    versions is read whole; saved again, it is in the format of today.

    Parameters
    ----------
    path
        A file that :meth:`IRLDetector.save` or :meth:`FleetDetector.save` wrote.

    Raises
    ------
    ModelFileError
        If the file is not whole, not a model, or of a newer version.
    """
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector

    file = FleetFile.open(path)
    if file is not None:
        return FleetDetector.from_store(file)
    model = read(path)
    kinds: dict[str, type[IRLDetector] | type[FleetDetector]] = {c.KIND: c for c in (IRLDetector, FleetDetector)}
    if model.kind not in kinds:
        raise model.wrong(f"a model of the unknown kind {model.kind!r}")
    with model.fitting_together():
        return kinds[model.kind].from_file(model)
