"""What a lane stores about a run's calls; see `schemas.stored`."""

from __future__ import annotations

from schemas.stored import Stored


class StoredCall(Stored, frozen=True):
    """A call of a run. Table `run.call`, key (run id, tool id, input hash)."""

    number: int
    """Position among the calls of the run, from 1; names the result's record."""
    fencing_number: int
    """Of the newest lease."""
    owner: str | None = None
    """Who holds the lease, or held it when the result was published; None when the call was released."""
    lease_expires_at: int = 0
    """In milliseconds since the epoch; 0 when nobody holds a lease."""
    claimed_by: str | None = None
    """Id of the command that got the lease."""
    ok: bool | None = None
    """Whether the published result is a value or an error; None when there is none."""
