"""Sequences moved to another process: transfer.h.

A TransferReceiver reserves room and gives a ticket, a TransferSender marks a sequence with it, and
messages go over links. The ends of a Loopback are links within a process; where there are two, each
has a Loopback, attaches one end, and carries the messages of the other by any way there is:

    for message in end.messages():          # what our side wants to say
        socket.send(message)
    end.post(socket.recv(...))              # what the other side said

Two processes need not carry them: SharedMemory (of one machine) and Tcp give each a link to the other.

Calls on links keep the interpreter's lock, so that both ends of a loopback may be used from any
thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._base_errors import Error
from ._cache import Cache, object_of
from ._core import (NULL, Struct, Uncopied, _from_buffer, bad_number, bare, bytes_in, close,
                    error_of, fail, instance, number, owned, set_fields, struct_dtype, why)
from ._errors import BY_STATUS, AgainError, ArgError, PeerError
from ._memory import Memory, memories_of
from ._native import ffi, lib
from ._records import ReceiverStats, Ticket, TransferConfigFields, TransferInfo
from ._sequence import Sequence
from ._wire import _Closing

if TYPE_CHECKING:
    from typing_extensions import Unpack

SLOT_RUN_DTYPE = struct_dtype("kvp_slot_run")
_INFO, _STATS, _TICKET = Struct(TransferInfo), Struct(ReceiverStats), Struct(Ticket)
_no_numbers = (TypeError, OverflowError)


def _bytes(name: str, value: Any) -> Any:
    """str as UTF-8, or bytes; as a C array."""
    return bytes_in(name, value.encode() if isinstance(value, str) else value)


class Link(Uncopied):
    """One end of a Loopback, of SharedMemory or Tcp. Attach it to a sender or a receiver; or use it by hand, and it is the
    other side's."""

    __slots__ = ("_c", "_keep", "max_message")

    def __init__(self, made: Any, keep: Any) -> None:
        self._c, self._keep = made, keep
        self.max_message = int(made.max_message)

    def post(self, message: bytes) -> None:
        """Send a message. AgainError: too many wait; PeerError: the link was cut."""
        data = _bytes("message", message)
        status = lib.kvpy_link_post(self._c, data, len(data))
        if status:
            fail(status, "Link.post", n_bytes=len(data), max_message=self.max_message)

    def take(self) -> bytes | None:
        """The next message, or None."""
        room, n = np.empty(self.max_message, np.uint8), ffi.new("size_t *")
        status = lib.kvpy_link_take(self._c, _from_buffer("uint8_t[]", room), len(room), n)
        if status == AgainError.status:
            return None
        if status:
            fail(status, "Link.take")
        return room[:n[0]].tobytes()

    def messages(self) -> Iterator[bytes]:
        """The messages that wait, until there are none."""
        while (message := self.take()) is not None:
            yield message


class Loopback(Uncopied):
    """Two links that are each other's peer.

    max_message  bytes of a message at most, from LINK_MESSAGE_MIN on
    n_messages   how many may wait, in each direction
    """

    def __init__(self, max_message: int = 1 << 20, n_messages: int = 64) -> None:
        made, ends = owned(lib.KVPY_LOOPBACK), ffi.new("kvp_link[2]")
        try:
            status = lib.kvpg_loopback_create(max_message, n_messages, made, ends)
        except _no_numbers as error:
            raise bad_number(error, max_message=max_message, n_messages=n_messages) from None
        if status:
            fail(status, "Loopback", max_message=max_message, n_messages=n_messages)
        self._c = bare(made, "kvp_loopback *")
        keep = (self._c, ends)
        self.ends = Link(ends + 0, keep), Link(ends + 1, keep)

    def cut(self) -> None:
        """Break it, for both: PeerError from now on."""
        lib.kvp_loopback_cut(self._c)


class _Socketed(Uncopied):
    """What links over a socket of the caller's have in common."""

    _KIND: int
    _TYPE: str
    _OPEN: Any
    _CONNECT: Any

    def __init__(self, sock: Any, max_message: int = c.SHM_MESSAGE,
                 n_messages: int = c.SHM_MESSAGES) -> None:
        made, said = owned(self._KIND), ffi.new("kvp_why *")
        fd = getattr(sock, "fileno", lambda: sock)()
        try:
            status = self._OPEN(fd, max_message, n_messages, made, said)
        except _no_numbers as error:
            raise bad_number(error, sock=fd, max_message=max_message,
                             n_messages=n_messages) from None
        if status:
            raise error_of(status, type(self).__name__, {"sock": fd}, said=_told(said))
        self._c = bare(made, self._TYPE)

    def connect(self) -> Link | None:
        """The link, once; None: the peer has not opened its end yet, call again."""
        end, said = ffi.new("kvp_link *"), ffi.new("kvp_why *")
        status = self._CONNECT(self._c, end, said)
        if status == AgainError.status:
            return None
        if status:
            raise error_of(status, f"{type(self).__name__}.connect", {}, said=_told(said))
        return Link(end, (self._c, end))


class SharedMemory(_Socketed):
    """One end of a link to another process of this machine, over shared memory.

    sock         a connected Unix socket (SOCK_STREAM or SOCK_SEQPACKET), or its number, with nothing
                 in it. It is duplicated: close yours, and read or write it no more
    max_message  bytes of a message that this end sends
    n_messages   how many may wait

    The peer finds its link broken when the last reference to this end and its link is gone.
    """

    _KIND, _TYPE = lib.KVPY_SHM, "kvp_shm *"
    _OPEN, _CONNECT = lib.kvpg_shm_open, lib.kvp_shm_connect


class Tcp(_Socketed):
    """One end of a link over a connected stream socket: TCP to another host, or a Unix socket.

    sock         connected, SOCK_STREAM, or its number, with nothing in it. It is duplicated: close
                 yours, and read or write it no more
    max_message  bytes of a message; the smaller one of both ends holds for both
    n_messages   buffers in each direction

    The peer finds its link broken when the last reference to this end and its link is gone: call
    flush until it returns True before that.
    """

    _KIND, _TYPE = lib.KVPY_TCP, "kvp_tcp *"
    _OPEN, _CONNECT = lib.kvpg_tcp_open, lib.kvp_tcp_connect

    def flush(self) -> bool:
        """Whether everything that was posted has reached the peer's system. PeerError: it is gone."""
        status = lib.kvp_tcp_flush(self._c)
        if status and status != AgainError.status:
            fail(status, "Tcp.flush")
        return not status


def _told(said: Any) -> str:
    text = ffi.string(said.text).decode()
    return f"; {text}" if text else ""


class TicketInfo(NamedTuple):
    """What a ticket says of a layer group; runs [n] SLOT_RUN_DTYPE (slot, n_tokens): where tokens
    begin .. end - 1 without those of ticket.gap go, in order."""

    ticket: Ticket
    runs: npt.NDArray[Any]


def ticket_read(ticket: bytes, group: int = 0) -> TicketInfo:
    """Read a ticket: for those who move KV by other means, straight into the slots."""
    data, room, of = _bytes("ticket", ticket), _TICKET.new(), number("group", group)
    status = lib.kvp_ticket_group(data, len(data), of, room, NULL, 0)
    runs = np.empty(room.n_runs, SLOT_RUN_DTYPE)
    if not status and len(runs):
        out = ffi.cast("kvp_slot_run *", _from_buffer("uint8_t[]", runs.view(np.uint8)))
        status = lib.kvp_ticket_group(data, len(data), of, room, out, len(runs))
    if status:
        fail(status, "ticket_read", ticket=f"<{len(data)} bytes>", group=group)
    return TicketInfo(_TICKET.read(room), runs)


class _Transfer(Uncopied):
    """One sequence's KV on its way."""

    _calls: dict[str, Any]

    def __init__(self, side: Any, id: int) -> None:
        self._side, self.id = side, id

    def info(self) -> TransferInfo:
        """state TRANSFER_..., status, the tokens, how much has moved."""
        room = _INFO.new()
        status = self._calls["info"](self._side._o, self.id, room)
        if status:
            fail(status, f"{type(self).__name__}.info")
        return _INFO.read(room)

    @property
    def state(self) -> int:
        """TRANSFER_WAITING, _MOVING, _SENT, _COMPLETE, _FAILED."""
        return self.info().state

    @property
    def error(self) -> Error | None:
        """Why it has failed."""
        info = self.info()
        if info.state != c.TRANSFER_FAILED:
            return None
        return error_of(info.status, type(self).__name__, {"by_peer": bool(info.by_peer)})

    def abort(self, reason: type[Error] = PeerError) -> None:
        """Give up, with a reason that the other side is told. StateError: it has ended."""
        if not isinstance(reason, type) or reason.__dict__.get("status") not in BY_STATUS:
            raise TypeError("reason: needs an exception class of a status, as PeerError")
        status = self._calls["abort"](self._side._o, self.id, reason.status)
        if status:
            fail(status, f"{type(self).__name__}.abort", reason=reason.name)

    def close(self) -> None:
        """Forget it, after it has ended. StateError: it has not."""
        status = self._calls["close"](self._side._o, self.id)
        if status:
            fail(status, f"{type(self).__name__}.close")


class Incoming(_Transfer):
    """KV that a receiver waits for. ticket: what its sender needs, bytes."""

    _calls = {"info": lib.kvpg_receiver_info_get, "abort": lib.kvpg_receiver_abort,
              "close": lib.kvpg_receiver_close}

    def __init__(self, side: TransferReceiver, id: int, ticket: bytes) -> None:
        super().__init__(side, id)
        self.ticket = ticket


class Outgoing(_Transfer):
    """KV that a sender sends."""

    _calls = {"info": lib.kvpg_sender_info_get, "abort": lib.kvpg_sender_abort,
              "close": lib.kvpg_sender_close}

    def ready(self, n_tokens: int, layer: int = c.LAYERS_ALL) -> None:
        """K and V of the sequence's first n_tokens tokens are written in a layer, or in all."""
        try:
            status = lib.kvpg_sender_ready(self._side._o, self.id, layer, n_tokens)
        except _no_numbers as error:
            raise bad_number(error, n_tokens=n_tokens, layer=layer) from None
        if status:
            fail(status, "Outgoing.ready", n_tokens=n_tokens, layer=layer)


class _Side(_Closing):
    """What senders and receivers have in common: links."""

    _name: str
    _kind: int

    def __init__(self, cache: Cache, memory: Memory | Iterable[Memory], *,
                 model: str | bytes = b"", **config: Unpack[TransferConfigFields]) -> None:
        made, name = ffi.new("kvp_transfer_config *"), _bytes("model", model)
        lib.kvp_transfer_config_init(made)
        set_fields(made, config, type(self).__name__)
        owner = object_of(cache)
        memories = memories_of("memory", memory)
        if len(memories) != len(cache.groups):
            raise ArgError(f"memory: has {len(memories)}, the cache has {len(cache.groups)} groups")
        pointers = ffi.new("kvp_memory *[]", memories)
        made.memories = ffi.cast("const kvp_memory *const *", pointers)
        made.model, made.model_bytes = name, len(name)
        # By number; kept until detached.
        self._links: dict[int, Link] = {}
        self._o = owned(self._kind, owner, (cache._o, memories, self._links))
        self.cache = cache
        cache._children.add(self)  # before there is what has to be closed before the cache
        status = getattr(lib, f"kvpy_{self._name}_create")(cache._o, made, self._o)
        if status:
            said = why(status, lib.kvp_transfer_config_check, made)
            fail(status, type(self).__name__, said=said, **config)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(lib, f"kvpg_{self._name}_{name}")(self._o, *arguments)
        if status:
            fail(status, f"{type(self).__name__}.{name}")

    def attach(self, link: Link) -> int:
        """Use a link from now on; gives its number. AgainError: max_links are attached."""
        if not isinstance(link, Link):
            raise TypeError(f"link: needs a Link, not {type(link).__name__}")
        out = ffi.new("uint32_t *")
        self._call("attach", link._c, out)
        self._links[int(out[0])] = link
        return int(out[0])

    def detach(self, link: int) -> None:
        """Leave a link alone from now on; transfers over it fail."""
        self._call("detach", number("link", link))
        self._links.pop(link, None)

    def check_link(self, link: int) -> None:
        """PeerError: it is broken, found by progress; ArgError: there is no such link."""
        self._call("link", number("link", link))

    def close(self) -> None:
        """Destroy it; nobody is told. Closing twice does nothing."""
        close(self._o, type(self).__name__)
        self.cache._children.discard(self)


class TransferReceiver(_Side):
    """Takes KV into the slots of its cache's sequences, when all of it is right.

    memory   the cache's KV memory, which the CPU reaches; with layer groups a list, one for each
    model    what the KV is computed with: both sides' must be equal; also model_version
    Keywords: max_transfers, model_version, epoch, max_links; see TransferConfigFields
    """

    _name, _kind = "receiver", lib.KVPY_KV_RECEIVER

    def reserve(self, seq: Sequence, end: int = c.END, space: str | bytes = b"") -> Incoming:
        """Make the slots of a sequence's tokens that are not computed, up to `end`, the place where
        a sender's KV goes. space: what else the KV depends on, as the sender gives it."""
        instance("seq", seq, Sequence)
        want, name = ffi.new("kvp_receive *"), _bytes("space", space)
        want.struct_size = ffi.sizeof("kvp_receive")
        want.seq.bits, want.end = seq.handle, number("end", end)
        want.space, want.space_bytes = name, len(name)
        n, id, capacity = ffi.new("size_t *"), ffi.new("uint64_t *"), 1024
        while True:
            room = ffi.new("uint8_t[]", capacity)
            status = lib.kvpg_receiver_reserve(self._o, want, room, capacity, n, id)
            if status != lib.KVP_E_TOO_SMALL:
                break
            capacity = n[0]
        if status:
            fail(status, "TransferReceiver.reserve", seq=seq, end=end)
        return Incoming(self, int(id[0]), bytes(ffi.buffer(room, n[0])))

    def progress(self, max_messages: int = 0) -> int:
        """Take what has arrived, from each link at most max_messages, 0: PROGRESS_MESSAGES. Gives
        how many transfers have ended since."""
        n = ffi.new("uint32_t *")
        self._call("progress", number("max_messages", max_messages), n)
        return int(n[0])

    def stats(self) -> ReceiverStats:
        """The counters."""
        room = _STATS.new()
        self._call("stats_get", room)
        return _STATS.read(room)


class TransferSender(_Side):
    """Sends KV of its cache's sequences to receivers, layer by layer. Made as a receiver."""

    _name, _kind = "sender", lib.KVPY_KV_SENDER

    def mark(self, seq: Sequence, ticket: bytes, link: int, space: str | bytes = b"",
             ready_tokens: int = 0) -> Outgoing:
        """Send what the ticket asks for of a sequence, once it is ready.

        link          number of the link to who made the ticket
        ready_tokens  whose KV is there in all layers; END: all that are computed, now and later
        """
        instance("seq", seq, Sequence)
        want, name, data = ffi.new("kvp_send *"), _bytes("space", space), _bytes("ticket", ticket)
        want.struct_size = ffi.sizeof("kvp_send")
        want.seq.bits, want.link = seq.handle, number("link", link)
        want.ticket, want.ticket_bytes = data, len(data)
        want.space, want.space_bytes = name, len(name)
        want.ready_tokens = number("ready_tokens", ready_tokens)
        id = ffi.new("uint64_t *")
        status = lib.kvpg_sender_mark(self._o, want, id)
        if status:
            fail(status, "TransferSender.mark", seq=seq, ticket=f"<{len(data)} bytes>", link=link,
                 ready_tokens=ready_tokens,
                 said=why(status, lib.kvpg_send_check, self._o, want))
        return Outgoing(self, int(id[0]))

    def progress(self) -> int:
        """Send what is ready, and take answers. Gives how many transfers have ended since."""
        n = ffi.new("uint32_t *")
        self._call("progress", n)
        return int(n[0])
