"""The exceptions' common ground: what each one knows, and the four classes of the status table."""

from __future__ import annotations


class Error(Exception):
    """A call was refused. Unless the header says otherwise, nothing has changed.

    status   the number, KVP_E_...; 0 when the package itself refused
    name     "KVP_E_NO_BLOCKS"
    missing  blocks: how many more must become available (NoBlocksError), or by how many the need
             exceeds what can ever be had (NeverError); else 0
    index    in a call for many: of the first sequence at fault; else 0
    tier     whose blocks are missing: DEVICE, HOST; STATE_SLOTS
    """

    status: int = 0
    name: str = ""
    text: str = ""

    def __init__(self, message: str = "", missing: int = 0, index: int = 0, tier: int = 0) -> None:
        super().__init__(message)
        self.missing = missing
        self.index = index
        self.tier = tier


class RetryError(Error):
    """Nothing is wrong: not now. Release something, or wait, and call again."""


class CallerError(Error):
    """The call is wrong, and will be wrong again."""


class DataError(Error):
    """Bytes or tokens that were asked for are not there, or are damaged."""


class SystemFailure(Error):
    """The machine refused, or the cache's own state is broken."""
