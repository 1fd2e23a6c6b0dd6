"""What of one partition has been taken and done, and so how far its offset may be committed."""

from __future__ import annotations

from collections import OrderedDict


class OffsetLedger:
    """Records of one partition, done in any order, committed in the partition's order.

    A record that is not done yet holds back the commit of those after it, not their execution. Not safe for
    several threads by itself.
    """

    def __init__(self) -> None:
        # Ordered, and unlike a dict quick at its front however much was deleted there.
        self._open: OrderedDict[int, bool] = OrderedDict()
        self._next = -1
        self._committed = -1

    def take(self, offset: int) -> None:
        """A record has been handed out; offsets only grow, holes (transaction markers) are fine."""
        self._open[offset] = False
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """A record is done with all its effects."""
        if offset in self._open:
            self._open[offset] = True
        while self._open and self._open[next(iter(self._open))]:
            self._open.popitem(last=False)

    @property
    def busy(self) -> bool:
        """Whether a record is taken and not done."""
        return not all(self._open.values())

    def to_commit(self) -> int | None:
        """The offset of the first record that is not done; None when the last commit said so already."""
        offset = next(iter(self._open), self._next)
        return offset if offset > self._committed and offset >= 0 else None

    def committed(self, offset: int) -> None:
        """The broker has stored this offset."""
        self._committed = max(self._committed, offset)
