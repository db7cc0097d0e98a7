"""kvpager: the memory manager for the KV cache of large language models.

    import numpy as np
    import kvpager

    with kvpager.Cache(n_blocks=4096, block_tokens=16) as cache:
        model = cache.namespace("llama-8b")
        prompt = np.arange(100, dtype=np.int32)
        seq = model.open(prompt)            # match the prefix, hold it, take the rest
        ...                                 # run tokens from seq.cached_tokens on
        seq.commit(100)                     # their KV is written
        seq.append(7)                       # room for the sampled token
        seq.close()                         # full units stay cached

Names are the C library's without the prefix: kvp_seq_commit is Sequence.commit, KVP_STOP_MISS is
STOP_MISS, KVP_E_NO_BLOCKS is NoBlocksError. What a call does is in the headers; docs/PYTHON.md says
what is different here.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ._attention import AttentionTeam as AttentionTeam
from ._attention import AttentionTree as AttentionTree
from ._attention import AttentionWindow as AttentionWindow
from ._attention import CsrLists as CsrLists
from ._attention import DenseLists as DenseLists
from ._attention import Rope as Rope
from ._attention import append as append
from ._attention import attention as attention
from ._attention import attention_has as attention_has
from ._attention import merge as merge
from ._base_errors import CallerError as CallerError
from ._base_errors import DataError as DataError
from ._base_errors import Error as Error
from ._base_errors import RetryError as RetryError
from ._base_errors import SystemFailure as SystemFailure
from ._cache import COPY_DTYPE as COPY_DTYPE
from ._cache import EVICTED_DTYPE as EVICTED_DTYPE
from ._cache import Cache as Cache
from ._cache import handles_of as handles_of
from ._constants import *  # noqa: F403
from ._core import ClosedError as ClosedError
from ._core import fields_explained as _fields_explained
from ._core import number as _number
from ._errors import *  # noqa: F403
from ._hashing import hash_root as hash_root
from ._hashing import hash_units as hash_units
from ._hashing import random_seed as random_seed
from ._inspect import ArenaReport as ArenaReport
from ._inspect import arena_inspect as arena_inspect
from ._lend import COLD_DTYPE as COLD_DTYPE
from ._lend import Load as Load
from ._memory import SLOT_MOVE_DTYPE as SLOT_MOVE_DTYPE
from ._memory import Copier as Copier
from ._memory import Layer as Layer
from ._memory import Layout as Layout
from ._memory import Memory as Memory
from ._memory import Tensor as Tensor
from ._memory import type_bytes as type_bytes
from ._memory import type_from_f32 as type_from_f32
from ._memory import type_scale as type_scale
from ._memory import type_to_f32 as type_to_f32
from ._meta import Cascade as Cascade
from ._meta import Csr as Csr
from ._meta import CsrBuffers as CsrBuffers
from ._meta import Delta as Delta
from ._meta import Dense as Dense
from ._meta import DenseBuffers as DenseBuffers
from ._meta import Level as Level
from ._meta import Tree as Tree
from ._meta import TreeBuffers as TreeBuffers
from ._meta import TrtLlm as TrtLlm
from ._meta import Windowed as Windowed
from ._meta import WindowedBuffers as WindowedBuffers
from ._meta import cascade as cascade
from ._meta import csr as csr
from ._meta import delta as delta
from ._meta import dense as dense
from ._meta import measure as measure
from ._meta import state_rings as state_rings
from ._meta import states as states
from ._meta import tree as tree
from ._meta import trtllm as trtllm
from ._meta import windowed as windowed
from ._native import ffi as _ffi
from ._native import lib as _lib
from ._oplog import Call as Call
from ._oplog import OpLog as OpLog
from ._oplog import call_name as call_name
from ._reasons import Reasons as Reasons
from ._records import *  # noqa: F403
from ._records import ConfigFields as ConfigFields
from ._records import LayoutFields as LayoutFields
from ._records import MemoryOptionsFields as MemoryOptionsFields
from ._records import RopeFields as RopeFields
from ._records import SchedConfigFields as SchedConfigFields
from ._records import TransferConfigFields as TransferConfigFields
from ._records import WireConfigFields as WireConfigFields
from ._sched import ENDED_DTYPE as ENDED_DTYPE
from ._sched import STEP_SEQ_DTYPE as STEP_SEQ_DTYPE
from ._sched import Expired as Expired
from ._sched import Scheduler as Scheduler
from ._sched import Step as Step
from ._sequence import Key as Key
from ._sequence import Namespace as Namespace
from ._sequence import Prompt as Prompt
from ._sequence import Sequence as Sequence
from ._snapshot import SnapshotItem as SnapshotItem
from ._snapshot import snapshot_peek as snapshot_peek
from ._tiers import EVENT_DTYPE as EVENT_DTYPE
from ._transfer import SLOT_RUN_DTYPE as SLOT_RUN_DTYPE
from ._transfer import Incoming as Incoming
from ._transfer import Link as Link
from ._transfer import Loopback as Loopback
from ._transfer import SharedMemory as SharedMemory
from ._transfer import Tcp as Tcp
from ._transfer import Outgoing as Outgoing
from ._transfer import TicketInfo as TicketInfo
from ._transfer import TransferReceiver as TransferReceiver
from ._transfer import TransferSender as TransferSender
from ._transfer import ticket_read as ticket_read
from ._wire import Mirror as Mirror
from ._wire import News as News
from ._wire import NewsItem as NewsItem
from ._wire import Sender as Sender
from ._wire import WorkerSeq as WorkerSeq
from ._wire import wire_config as wire_config
from ._wire import wire_peek as wire_peek

__version__: str = _ffi.string(_lib.kvp_version()).decode()


def blocks_for_tokens(block_tokens: int, n_tokens: int) -> int:
    """ceil(n_tokens / block_tokens)."""
    return int(_lib.kvp_blocks_for_tokens(_number("block_tokens", block_tokens),
                                          _number("n_tokens", n_tokens)))


def blocks_for_append(block_tokens: int, n_tokens: int, n_new: int, reserve: int = 0) -> int:
    """Blocks that a sequence of n_tokens tokens newly needs for n_new more."""
    return int(_lib.kvp_blocks_for_append(
        _number("block_tokens", block_tokens), _number("n_tokens", n_tokens),
        _number("n_new", n_new), _number("reserve", reserve)))


# What help() shows: keywords that are fields of a struct, with what the header says of them.
for _made, _fields in ((Cache, ConfigFields), (Scheduler, SchedConfigFields),
                       (Layout, LayoutFields), (Rope, RopeFields),
                       (TransferSender, TransferConfigFields),
                       (TransferReceiver, TransferConfigFields),
                       (Sender, WireConfigFields), (Mirror, WireConfigFields)):
    _fields_explained(_made, _fields)

if _TYPE_CHECKING:
    from .publish import Publisher as Publisher


def __getattr__(name: str) -> _Any:
    """Publisher, when it is used: it needs libzmq."""
    if name == "Publisher":
        from .publish import Publisher
        return Publisher
    raise AttributeError(f"module 'kvpager' has no attribute {name!r}")


__all__ = [_name for _name in dir() if not _name.startswith("_")]
