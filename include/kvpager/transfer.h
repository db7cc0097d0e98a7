/* kvpager/transfer.h: a sequence's KV, moved to another process. Disaggregated prefill.
 *
 *   receiver (decodes)                               sender (prefills)
 *   kvp_seq_open(cache, ns, &prompt, &seq, NULL);    kvp_seq_open(...): the same prompt
 *   kvp_receiver_reserve(receiver, &receive,
 *                        bytes, .., &n, &id);
 *        `--- the ticket, by any way there is --->   kvp_sender_mark(sender, &send, &id);
 *                                                    for each layer of each step:
 *                                                        ... the layer's K and V are written ...
 *                                                        kvp_sender_ready(sender, id, layer, n);
 *   kvp_receiver_progress(receiver, .., &n_ended);   kvp_sender_progress(sender, &n_ended);
 *   kvp_receiver_info_get(...): KVP_TRANSFER_COMPLETE    kvp_seq_commit(cache, seq, n);
 *   kvp_seq_commit(cache, seq, info.end);            kvp_sender_info_get(...):
 *   KVP_TRANSFER_COMPLETE kvp_receiver_close(receiver, id);                kvp_sender_close(sender,
 *   id);
 *
 * A receiver has room for tokens [begin, end) of a sequence. begin is what is computed, so a cached
 * prefix is not sent. The values of the tokens may be known or not (kvp_seq_extend). The receiver
 * hands out a ticket: which KV, in what shape, and the slots as runs. A sender marks a sequence
 * with the ticket. What the sequence has from begin on, and what it will have, is sent layer by
 * layer, as soon as the caller says that it is ready. What arrives is verified, then written. It
 * counts as KV only when all of it is there: then the receiver's caller commits.
 *
 * Rules:
 *   R1  The receiver trusts nothing. Type, sizes, model, version, namespace, range and slice are
 *       compared before the first byte is written into the pool. A chunk is taken only from the
 *       link that began its layers and heads, only at the next position, whole, and with the right
 *       checksum. What is refused changes nothing.
 *   R2  Before each write the sequence is checked. If it was closed, truncated, committed or
 *       swapped out, or its row was changed since, it is not written to, and the transfer fails.
 *   R3  A transfer is complete when every layer and head has every token and the sender's cache
 *       counts these tokens as computed. Both sides must have the same values for the tokens that
 *       the receiver knows. Transfers never commit, open or close a sequence. One that failed
 *       leaves the sequence as it was before kvp_receiver_reserve: close it, or compute it here.
 *   R4  No clock, no timer, no thread: everything happens inside calls. A caller that does not want
 *       to wait any longer aborts.
 *   R5  Nothing allocates after creation and attach, nothing blocks. The same calls and messages
 *       give the same bytes.
 *
 * Shapes. The two memories may lie differently, have other block sizes, and other numbers of
 * blocks. They must have the same type, sizes of K and V, and scales in both or in none. A memory
 * may have a part of the model's layers and heads (kvp_layout.first_layer, first_head). What both
 * have is sent. A receiver that needs more takes it from other senders, with the same ticket. For
 * example, one of 8 heads receives from two senders of 4 each, over two links. A sender of 8 heads
 * serves two receivers of 4, each with its own ticket. With scales, which belong to blocks:
 * block_tokens must be equal, begin a multiple of it, and a block is sent when it is full, or is
 * the last one.
 *
 * Layer groups (windows.h). The cache has a row for each group, and the configuration a memory for
 * each. Both sides must have the same groups: as many, with the same windows, and each with the
 * type and sizes that it has on the other side. What is said of block_tokens holds for each group.
 * A layer is numbered in its group. Tokens of [begin, end) that a window of the receiver has
 * dropped, as kvp_seq_window_get shows them when the transfer is reserved, are not sent in that
 * group.
 *
 * Recurrent state (states.h) is one more group, behind the others: memories[n_groups], of
 * KVP_BYTES. Of it the state after `end` tokens is sent, and nothing else. It goes into the slot
 * that the receiver's sequence writes, so the receiver's commit makes it the sequence's state, and
 * kvp_seq_checkpoint keeps it. For another checkpoint, end a transfer there: the first one of a
 * prompt at prompt_end, commit, checkpoint, then one of the rest. The sender's cache must have
 * exactly `end` tokens computed until the state is sent:
 *
 *   - With fewer the transfer waits. With more, or a lost state, it fails with KVP_E_DROPPED.
 *   - With further tokens that are not computed, a step may be writing the state. It is sent only
 *     if the sequence reads a slot that it does not write, as after kvp_seq_checkpoint.
 *   - With overlapped steps no step writes it. It is sent until a step with more tokens takes
 *     effect.
 *   - To go on at once, fork the sequence at `end`, and mark the fork.
 *
 * A state that was begun to be sent from one slot, and is in another one later, fails the transfer
 * with KVP_E_STATE. A receiver's sequence that reads the slot that it writes is refused
 * (KVP_E_STATE): the state that it has would be lost if the transfer fails. A checkpoint, or a fork
 * and an extend by 0 tokens, gives it another slot to write. One with a ring is refused, too: a
 * commit of some of its tokens would go on with another slot. With overlapped steps it must have a
 * slot to write, and none may be a step's that is out: extend it by 0 tokens after a commit, and
 * declare nothing of the transfer's tokens before that has ended. Messages have another version
 * with state, which libraries without it refuse (KVP_E_VERSION).
 *
 * States, of both sides; every other call is KVP_E_STATE:
 *
 *   state      receiver                          sender                            calls
 *   WAITING    no sender has begun               its first message is not sent     abort, ready
 *   MOVING     KV arrives                        KV is sent                        abort, ready
 *   SENT       -                                 all is sent: no answer yet        abort, ready
 *   COMPLETE   all of it is there                the receiver says so              close
 *   FAILED     see info.status; never again      see info.status                   close
 *
 *   WAITING -> MOVING -> (SENT ->) COMPLETE;  WAITING, MOVING, SENT -> FAILED
 *
 * The bytes are in docs/FORMATS.md. Checksums find damage; they are no signature: use a channel
 * that you trust with your users' prompts.
 */
#ifndef KVPAGER_TRANSFER_H
#define KVPAGER_TRANSFER_H

#include "cache.h"
#include "memory.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------- links */

/* Largest message that every link can take, at least. */
#define KVP_LINK_MESSAGE_MIN 1024u

/* Links of one sender or receiver. */
#define KVP_TRANSFER_LINKS_MAX 64u

/* The most messages that a call to progress takes from each link. So it ends, however fast a peer
 * sends. */
#define KVP_PROGRESS_MESSAGES 1024u

/* Messages to one peer, and from it. What a back end offers; kvp_loopback_create, kvp_shm_open and
 * kvp_tcp_open make them. Messages come whole and in the order in which they were sent. A
 * link that cannot guarantee that any more returns KVP_E_PEER. (The protocol detects a link that
 * breaks this rule.)
 *
 * Used by one sender or one receiver at a time, from one thread. No function blocks.
 *
 *   lend        give a buffer for the next message, 16-byte aligned. Until it is posted, lend gives
 *               the same buffer again. KVP_OK; KVP_E_AGAIN: none is free until progress was made;
 *               KVP_E_PEER, KVP_E_IO: the link is broken and stays so
 *   post        send the first n_bytes of the lent buffer: 1 .. what was lent. KVP_OK; KVP_E_PEER,
 *               KVP_E_IO
 *   take        give the next message, 16-byte aligned, valid until give_back. Until then take
 *               gives the same message again. KVP_OK; KVP_E_AGAIN: none has arrived; KVP_E_PEER,
 *               KVP_E_IO: broken, and nothing that arrived is left
 *   give_back   the message that was taken is not needed any more
 *   progress    make progress. The next lend or take returns what goes wrong */
typedef struct kvp_link {
    size_t struct_size; /* sizeof(kvp_link) */
    size_t max_message; /* bytes of the largest message, >= KVP_LINK_MESSAGE_MIN */
    void *context;
    kvp_status (*lend)(void *context, size_t n_bytes, void **out_buffer);
    kvp_status (*post)(void *context, size_t n_bytes);
    kvp_status (*take)(void *context, const void **out_bytes, size_t *out_n_bytes);
    void (*give_back)(void *context);
    void (*progress)(void *context);
} kvp_link;

/* Two links that are each other's peer, in this process. Messages wait in memory. */
typedef struct kvp_loopback kvp_loopback;

/* Make a loopback.
 *
 * Takes:   max_message  KVP_LINK_MESSAGE_MIN .. 2^31-1
 *          n_messages   that may wait, in each direction, 1..65536
 * Gives:   out_ends     [2] the links
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG; KVP_E_NO_MEMORY
 * Thread:  any; then both ends from one thread at a time
 */
KVP_API kvp_status kvp_loopback_create(size_t max_message, uint32_t n_messages,
                                       kvp_loopback **out_loopback, kvp_link *out_ends);

/* Cut it: both ends say KVP_E_PEER, once they have taken what has arrived. NULL is ignored. */
KVP_API void kvp_loopback_cut(kvp_loopback *loopback);

/* Free it. NULL is ignored. */
KVP_API void kvp_loopback_destroy(kvp_loopback *loopback);

/* One end of a link to another process of this machine, over shared memory. The buffers that it
 * lends are a ring that the peer reads: KV is gathered into it, and scattered out of it, and no
 * byte is copied between. Linux 5.1 or later.
 *
 * The processes meet over a connected Unix socket (socketpair before fork; or one listens at a
 * path, which is then the link's name). Both open an end, in any order. The memory has no name and
 * goes with its last process, however that ends. When the peer's process has ended or closed its
 * end, the link returns KVP_E_PEER, after what had arrived. (Not as long as a process that it
 * forked lives with a copy of its socket: close it there.)
 *
 * A peer cannot write to this end's memory, nor take back what it has shared of its own. It may
 * change a message while it is read. Sender and receiver read what decides where KV goes from a
 * copy; see rule R1. A peer that breaks the ring's rules is KVP_E_IO. */
typedef struct kvp_shm kvp_shm;

/* What suits most processors: messages of 256 KiB of KV, and four on their way. */
#define KVP_SHM_MESSAGE  262272u /* 256 KiB and 128 bytes for what is before it */
#define KVP_SHM_MESSAGES 4u

/* Open an end, and send the peer its memory.
 *
 * Takes:   socket       a connected Unix socket, SOCK_STREAM or SOCK_SEQPACKET, with nothing in it.
 *                       It is duplicated; yours may be closed. Nothing else may read or write it
 *          max_message  that this end sends, KVP_LINK_MESSAGE_MIN .. 2^30
 *          n_messages   that may wait, 1..65536. Memory: their product, and a page
 * Gives:   out_shm      the end
 *          out_why      what is wrong, as a sentence; may be NULL
 * Returns: KVP_OK; KVP_E_ARG: also another kind of socket, such as one to another machine;
 *          KVP_E_NO_MEMORY: no memory, or it cannot be sealed; KVP_E_PEER: the socket is closed;
 *          KVP_E_IO: no descriptor, or a system that has no such memory
 * After-failure: out_shm is not written, and nothing was sent
 * Owns:    the end is the caller's: kvp_shm_close
 * Thread:  any; then all of a link from one thread at a time. Blocks: never
 * Cost:    O(max_message x n_messages): all pages are taken now
 */
KVP_API kvp_status kvp_shm_open(int socket, size_t max_message, uint32_t n_messages,
                                kvp_shm **out_shm, kvp_why *out_why);

/* Connect the end, when the peer has opened its own.
 *
 * Gives:   out_end      for kvp_sender_attach or kvp_receiver_attach; valid until close
 *          out_why      what is wrong, as a sentence; may be NULL
 * Returns: KVP_OK; KVP_E_AGAIN: the peer has not opened its end yet; KVP_E_ARG; KVP_E_STATE: it is
 *          connected; KVP_E_PEER: the peer is gone; KVP_E_VERSION: it has another version;
 *          KVP_E_FORMAT: what it sent is no end of a link, or its memory could be taken back
 * After-failure: out_end is not written. Except for KVP_E_AGAIN, KVP_E_ARG and KVP_E_STATE the end
 *          is good for nothing, and each call returns the same
 * Thread:  the link's. Blocks: never
 * Cost:    O(the peer's max_message x n_messages), whose pages are mapped
 */
KVP_API kvp_status kvp_shm_connect(kvp_shm *shm, kvp_link *out_end, kvp_why *out_why);

/* Close an end: the peer takes what has arrived, then finds the link broken. Senders and receivers
 * that use its link must be destroyed or detached before. NULL is ignored. Thread: the link's. */
KVP_API void kvp_shm_close(kvp_shm *shm);

/* One end of a link over a connected stream socket: TCP to another host, or a Unix socket. Each end
 * gathers messages into buffers of its own and sends from there. Not on Windows.
 *
 * Both processes connect a socket in their own way, and open an end each, in any order. When the
 * peer's process has ended or closed its end, the link returns KVP_E_PEER, after what had arrived.
 * A host that vanishes is noticed when the system gives the connection up: set SO_KEEPALIVE or
 * TCP_USER_TIMEOUT on the socket. Bytes cross as they are: use a network that you trust, or a
 * tunnel. A peer that breaks the link's rules is KVP_E_IO. */
typedef struct kvp_tcp kvp_tcp;

/* Open an end, and send the peer its hello.
 *
 * Takes:   socket       a connected SOCK_STREAM socket with nothing in it. It is duplicated; yours
 *                       may be closed. Nothing else may read or write it. TCP_NODELAY is set on it
 *          max_message  KVP_LINK_MESSAGE_MIN .. 2^30. The smaller one of both ends holds for both
 *          n_messages   buffers of each direction, 1..65536. Memory: 2 x n_messages x max_message
 * Gives:   out_tcp      the end
 *          out_why      what is wrong, as a sentence; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY; KVP_E_PEER: the socket is closed, or full already;
 *          KVP_E_IO: no descriptor
 * After-failure: out_tcp is not written
 * Owns:    the end is the caller's: kvp_tcp_close
 * Thread:  any; then all of a link from one thread at a time. Blocks: never
 * Cost:    O(1): the memory is allocated here, and not touched
 */
KVP_API kvp_status kvp_tcp_open(int socket, size_t max_message, uint32_t n_messages,
                                kvp_tcp **out_tcp, kvp_why *out_why);

/* Connect the end, when the peer's hello has come.
 *
 * Gives:   out_end      for kvp_sender_attach or kvp_receiver_attach; valid until close
 *          out_why      what is wrong, as a sentence; may be NULL
 * Returns: KVP_OK; KVP_E_AGAIN: the peer has not opened its end yet; KVP_E_ARG; KVP_E_STATE: it is
 *          connected; KVP_E_PEER: the peer is gone; KVP_E_VERSION: it has another version;
 *          KVP_E_FORMAT: what it sent is no hello of such a link
 * After-failure: out_end is not written. Except for KVP_E_AGAIN, KVP_E_ARG and KVP_E_STATE the end
 *          is good for nothing, and each call returns the same
 * Owns:    out_end's context is the end
 * Thread:  the link's. Blocks: never
 * Cost:    O(1), allocates nothing
 */
KVP_API kvp_status kvp_tcp_connect(kvp_tcp *tcp, kvp_link *out_end, kvp_why *out_why);

/* Ask whether everything that was posted has reached the peer's system: before an end is closed, or
 * the process ends. It makes progress.
 *
 * Returns: KVP_OK; KVP_E_AGAIN: not yet, call again; KVP_E_PEER, KVP_E_IO: broken; KVP_E_ARG;
 *          KVP_E_STATE: not connected
 * Owns:    the end stays the caller's, also when it is broken
 * Thread:  the link's. Blocks: never
 * Cost:    O(bytes that the system takes), allocates nothing
 */
KVP_API kvp_status kvp_tcp_flush(kvp_tcp *tcp);

/* Close an end, at once. What is not flushed may be lost; the peer takes what has arrived, then
 * finds the link broken. NULL is ignored.
 *
 * Owns:    the end is gone, and so is its link: destroy or detach senders and receivers before
 * Thread:  the link's. Blocks: never
 * Cost:    O(bytes that came and were not taken, up to 4 MiB)
 */
KVP_API void kvp_tcp_close(kvp_tcp *tcp);

/* ------------------------------------------------------------------------------ what both have */

/* What a sender or a receiver is made for. */
typedef struct kvp_transfer_config {
    size_t struct_size;       /* set by kvp_transfer_config_init */
    kvp_cache *cache;         /* read only: what its sequences are is looked up */
    const kvp_memory *memory; /* of the cache's device tier: block_tokens as the cache's, n_blocks
                                 not below it. Memory that the CPU reaches. NULL: see memories */
    const void *model;        /* [model_bytes] what the KV is computed with: both sides' must be
                                 equal. Copied, as a hash */
    uint32_t model_bytes;     /* default 0 */
    uint32_t max_transfers;   /* not closed yet, 1..4096; default 64 */
    uint64_t model_version;   /* the same; default 0 */
    uint64_t epoch;           /* of a receiver: other than that of every receiver before it that a
                                 sender may still know; default 0 */
    uint32_t max_links;       /* attached at once, 1..KVP_TRANSFER_LINKS_MAX; default 8 */
    uint32_t reserved;        /* 0 */
    const kvp_memory *const *memories; /* [n_groups] the same for each layer group, copied, with
                                          memory NULL; NULL (default): one group, in memory. With
                                          state_slots [n_groups + 1]: the last one has the slots */
} kvp_transfer_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_transfer_config_init(kvp_transfer_config *config);

/* Tell whether a sender or receiver can be made of a configuration, and if not, why.
 *
 * Gives:   out_why      the first field that is wrong; may be NULL
 * Returns: KVP_OK; KVP_E_ARG
 * Thread:  read
 */
KVP_API kvp_status kvp_transfer_config_check(const kvp_transfer_config *config, kvp_why *out_why);

enum {
    KVP_TRANSFER_WAITING = 1,
    KVP_TRANSFER_MOVING = 2,
    KVP_TRANSFER_SENT = 3,
    KVP_TRANSFER_COMPLETE = 4,
    KVP_TRANSFER_FAILED = 5
};

typedef struct kvp_transfer_info {
    uint32_t state;    /* KVP_TRANSFER_... */
    kvp_status status; /* FAILED: why; else KVP_OK. A receiver: see kvp_receiver_progress; a sender:
                          see kvp_sender_progress */
    uint32_t by_peer;  /* FAILED: 1: the other side said so */
    uint32_t begin;    /* tokens [begin, end) */
    uint32_t end;
    uint32_t owed; /* messages that tell a peer how it ended, and that its link did not take yet:
                          call progress before close, or the peer is not told */
    kvp_seq seq;
    uint64_t chunks; /* sent, or taken */
    uint64_t bytes;  /* of K, V, scales and states in them */
} kvp_transfer_info;

/* ------------------------------------------------------------------------------------- tickets */

/* Slots slot, slot + 1, ... of the receiver's pool. */
typedef struct kvp_slot_run {
    int64_t slot;
    uint32_t n_tokens; /* >= 1 */
} kvp_slot_run;

/* What a ticket says. */
typedef struct kvp_ticket {
    uint64_t epoch; /* of the receiver */
    uint64_t id;    /* of the transfer there */
    uint64_t model_version;
    uint32_t type; /* KVP_F32 ...; sizes, block_tokens, slice, n_runs, gap, window: of one group */
    uint32_t k_size;
    uint32_t v_size;
    uint32_t block_tokens; /* of state 1 */
    kvp_slice slice;       /* the receiver's, in the model's numbers */
    uint32_t begin;        /* tokens [begin, end) */
    uint32_t end;
    uint32_t n_runs;
    uint64_t n_groups; /* 64 bits: it lies where no field was */
    kvp_range gap;     /* tokens of [begin, end) that the window has dropped; 0, 0: none */
    kvp_window window;
} kvp_ticket;

/* Read a ticket: for those who move KV by other means, straight into the slots. With recurrent
 * state the last group, of KVP_BYTES, is the one of state: its run is the slot that takes it.
 *
 * Takes:   bytes        [n_bytes]
 *          capacity     of out_runs; 0 asks for the number only
 * Gives:   out_ticket   written also on KVP_E_TOO_SMALL; may be NULL
 *          out_runs     [n_runs] the slots of tokens begin .. end-1 without those of the gap, in
 *                       order; no run can be joined with the next
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_FORMAT; KVP_E_VERSION; KVP_E_TOO_SMALL
 * Thread:  pure. Cost: O(n_bytes)
 */
KVP_API kvp_status kvp_ticket_read(const void *bytes, size_t n_bytes, kvp_ticket *out_ticket,
                                   kvp_slot_run *out_runs, uint32_t capacity);

/* The same for another layer group than the first.
 * Returns: as kvp_ticket_read; KVP_E_ARG: also a group that the ticket has not */
KVP_API kvp_status kvp_ticket_group(const void *bytes, size_t n_bytes, uint32_t of_group,
                                    kvp_ticket *out_ticket, kvp_slot_run *out_runs,
                                    uint32_t capacity);

/* --------------------------------------------------------------------------------- the receiver */

typedef struct kvp_receiver kvp_receiver;

/* Make a receiver.
 *
 * Takes:   config       copied; cache and memory are used until destroy
 * Returns: KVP_OK; KVP_E_ARG: also a memory that does not fit the cache, or none for a layer group
 *          (kvp_transfer_config_check names it); KVP_E_TOO_LONG; KVP_E_NO_MEMORY
 * Thread:  cache. Cost: O(max_transfers x L x H): with attach the only calls that allocate
 */
KVP_API kvp_status kvp_receiver_create(const kvp_transfer_config *config,
                                       kvp_receiver **out_receiver);

/* Destroy a receiver. Peers are not informed; sequences and links stay the caller's. NULL is
 * ignored. */
KVP_API void kvp_receiver_destroy(kvp_receiver *receiver);

/* Take messages from a link from now on.
 *
 * Takes:   link         copied; its context is used until detach or destroy
 * Gives:   out_link     0 .. max_links-1: its number
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_AGAIN: max_links are attached
 */
KVP_API kvp_status kvp_receiver_attach(kvp_receiver *receiver, const kvp_link *link,
                                       uint32_t *out_link);

/* Stop using a link. Transfers that a sender behind it has begun fail with KVP_E_PEER.
 * Returns: KVP_OK; KVP_E_ARG: no such link */
KVP_API kvp_status kvp_receiver_detach(kvp_receiver *receiver, uint32_t link);

/* Tell whether a link works. Use it for a transfer whose sender may be gone before it began.
 * Returns: KVP_OK; KVP_E_PEER, KVP_E_IO: broken, found by progress; KVP_E_ARG: no such link */
KVP_API kvp_status kvp_receiver_link(const kvp_receiver *receiver, uint32_t link);

/* What is to be received. Initialise it by name: {.struct_size = sizeof(kvp_receive), ...}. */
typedef struct kvp_receive {
    size_t struct_size;
    kvp_seq seq;  /* its tokens from computed on; their slots must be writable, as they are
                             after kvp_seq_open and kvp_seq_extend */
    uint32_t end; /* up to here; KVP_END: all tokens */
    uint32_t space_bytes;
    const void *space; /* [space_bytes] the namespace's name, and anything else the KV depends on
                             besides the tokens, such as a custom window: the sender must give
                             the same */
} kvp_receive;

/* Reserve a transfer: from now on a sender's KV goes into its slots.
 *
 * The ticket takes 128 bytes, 52 for each layer group and, for each run of slots, 2 to 12. A copy
 * that waits in the plan for this sequence may run before or after KV arrives.
 *
 * Gives:   out_bytes    [out_n_bytes] the ticket
 *          out_n_bytes  written also on KVP_E_TOO_SMALL; capacity 0 asks for the size only, and
 *                       reserves nothing
 *          out_id       never 0, and never twice: a place is used up after 2^32 - 1 transfers
 * Returns: KVP_OK; KVP_E_ARG: end exceeds the tokens, or every token before it is computed;
 *          KVP_E_HANDLE; KVP_E_STATE: swapped out, slots that were never made writable, a slot of
 *          state that it reads, too, or a transfer of this sequence that is not closed;
 *          KVP_E_DROPPED: after `end` tokens a window keeps some that it has dropped;
 *          KVP_E_MISMATCH: scales, and begin is not at the start of a block; KVP_E_TOO_SMALL;
 *          KVP_E_AGAIN: max_transfers are not closed, or used up
 * After-failure: unchanged
 * Thread:  cache. Cost: O(end + L x H)
 */
KVP_API kvp_status kvp_receiver_reserve(kvp_receiver *receiver, const kvp_receive *receive,
                                        void *out_bytes, size_t capacity, size_t *out_n_bytes,
                                        uint64_t *out_id);

/* Take what has arrived.
 *
 * A message may begin a sender's part. It is refused, and the sender is informed, if one of these
 * is wrong; the transfer then waits for a better one:
 *
 *   KVP_E_VERSION   another version
 *   KVP_E_HANDLE    the transfer is not here; KVP_E_STATE: it has ended, or another sender has
 *                   begun these layers or heads
 *   KVP_E_MISMATCH  other groups, another type, size, model, namespace, range, slice or ticket
 *
 * After that, a part that is wrong fails the transfer:
 *
 *   KVP_E_FORMAT    a chunk is damaged, cut, of a wrong length, out of its place, or missing
 *   KVP_E_MISMATCH  the sender's tokens are others
 *   KVP_E_STATE     the sequence was changed; KVP_E_HANDLE: or closed
 *   KVP_E_PEER      a link is broken; or what the sender gave as its reason
 *
 * Messages whose head is damaged are dropped and counted.
 *
 * Takes:   max_messages from each link at most; 0: KVP_PROGRESS_MESSAGES. More may be left then:
 *          call again
 * Gives:   out_n_ended  transfers that became COMPLETE or FAILED since this was last given, or NULL
 * Returns: KVP_OK
 * Thread:  cache, and exclusive: the slots of the transfers. Blocks: never
 * Cost:    O(bytes taken)
 */
KVP_API kvp_status kvp_receiver_progress(kvp_receiver *receiver, uint32_t max_messages,
                                         uint32_t *out_n_ended);

/* Read the state of a transfer. Returns: KVP_OK; KVP_E_HANDLE: closed, or never was. Thread: read.
 */
KVP_API kvp_status kvp_receiver_info_get(const kvp_receiver *receiver, uint64_t id,
                                         kvp_transfer_info *out_info);

/* Give up: the transfer is FAILED with the caller's reason, and its senders are informed. The slots
 * are the caller's again.
 * Takes:   reason       a status that is no success: KVP_E_PEER if there is nothing better
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_ARG; KVP_E_STATE: it has ended */
KVP_API kvp_status kvp_receiver_abort(kvp_receiver *receiver, uint64_t id, kvp_status reason);

/* Forget a transfer that has ended; its id is stale.
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_STATE: it has not ended */
KVP_API kvp_status kvp_receiver_close(kvp_receiver *receiver, uint64_t id);

typedef struct kvp_receiver_stats {
    uint64_t messages;
    uint64_t damaged;     /* dropped: no message, or its head was damaged */
    uint64_t refused;     /* parts refused; last_refusal says why */
    uint64_t late;        /* messages of transfers that have ended or are not here, dropped */
    uint64_t chunks;      /* written */
    uint64_t bytes;       /* of K, V, scales and states */
    int32_t last_refusal; /* kvp_status */
    uint32_t reserved;
} kvp_receiver_stats;

/* Read the counters. Returns: KVP_OK; KVP_E_ARG. Thread: read. */
KVP_API kvp_status kvp_receiver_stats_get(const kvp_receiver *receiver,
                                          kvp_receiver_stats *out_stats);

/* ----------------------------------------------------------------------------------- the sender */

typedef struct kvp_sender kvp_sender;

/* Make a sender, as kvp_receiver_create makes a receiver. config.epoch is ignored.
 * Returns: as kvp_receiver_create. Thread: cache. Cost: O(max_transfers x L) */
KVP_API kvp_status kvp_sender_create(const kvp_transfer_config *config, kvp_sender **out_sender);

/* Destroy a sender. Receivers are not informed; sequences and links stay the caller's. NULL is
 * ignored. */
KVP_API void kvp_sender_destroy(kvp_sender *sender);

/* Use a link from now on. Returns: as kvp_receiver_attach. */
KVP_API kvp_status kvp_sender_attach(kvp_sender *sender, const kvp_link *link, uint32_t *out_link);

/* Stop using a link. Transfers over it fail with KVP_E_PEER. Returns: as kvp_receiver_detach. */
KVP_API kvp_status kvp_sender_detach(kvp_sender *sender, uint32_t link);

/* Tell whether a link works. Returns: as kvp_receiver_link. */
KVP_API kvp_status kvp_sender_link(const kvp_sender *sender, uint32_t link);

/* All layers of all groups: for kvp_sender_ready. */
#define KVP_LAYERS_ALL UINT32_MAX

/* What is to be sent. Initialise it by name: {.struct_size = sizeof(kvp_send), ...}. */
typedef struct kvp_send {
    size_t struct_size;
    kvp_seq seq;        /* kept open until the transfer is SENT at least */
    const void *ticket; /* [ticket_bytes] read during the call only */
    size_t ticket_bytes;
    uint32_t link;        /* to the receiver that made the ticket */
    uint32_t space_bytes; /* as the receiver's */
    const void *space;
    uint32_t ready_tokens; /* whose KV is there in all layers: at most the tokens. KVP_END: all
                                that are computed, now and later: the transfer follows commits, for
                                engines that commit when it is written */
    uint32_t reserved;     /* 0 */
} kvp_send;

/* Mark a sequence: tokens [begin, end) of the ticket are sent, once they are ready.
 *
 * The sequence may have fewer tokens than the ticket's end; later tokens are sent when they are
 * ready. With ready_tokens = KVP_END, tokens are ready when they are computed, and progress finds
 * them. Then kvp_sender_ready is needed only to send a layer earlier.
 *
 * Returns: KVP_OK; KVP_E_ARG: also no such link; KVP_E_FORMAT, KVP_E_VERSION: no ticket that this
 *          library reads; KVP_E_HANDLE; KVP_E_STATE: this ticket is marked on this link already;
 *          KVP_E_MISMATCH: other layer groups, another type, size, model, version, space, scales
 *          and other blocks (kvp_send_check names the first of these), no layer or head in common,
 *          or other tokens, as far as both know them by now;
 *          KVP_E_TOO_SMALL: the link's messages do not hold one token (with scales: one block);
 *          KVP_E_PEER: the link is broken; KVP_E_AGAIN: max_transfers are not closed, or used up
 * After-failure: unchanged
 * Thread:  cache. Cost: O(ticket + tokens)
 */
KVP_API kvp_status kvp_sender_mark(kvp_sender *sender, const kvp_send *send, uint64_t *out_id);

/* Tell what a ticket asks for that this sender has not: how the two sides differ.
 *
 * Takes:   send         as for kvp_sender_mark; of it only ticket and space are looked at
 * Gives:   out_why      the first field that differs, as in the ticket and as here, for example
 *                       "groups[1].recent_tokens is 512, expected 128"; may be NULL
 * Returns: KVP_OK: the two fit; KVP_E_ARG; KVP_E_FORMAT, KVP_E_VERSION: no ticket that this library
 *          reads; KVP_E_MISMATCH
 * Thread:  read. Cost: O(ticket)
 */
KVP_API kvp_status kvp_send_check(const kvp_sender *sender, const kvp_send *send, kvp_why *out_why);

/* Say that K and V of the first n_tokens tokens are written in a layer, and send what is new there.
 * The call sends as much as the link takes; progress sends the rest.
 *
 * Do not write them again until the transfer has sent them (it reads them where they are). If you
 * take back KV that was ready (kvp_seq_invalidate, a step that failed), abort the transfer.
 *
 * Takes:   layer        0..L-1 of this memory, or KVP_LAYERS_ALL. With several groups the layers
 *                       of each memory follow those of the one before. Layers of recurrent state
 *                       have no number here: they are ready when `end` tokens are computed
 *          n_tokens     of the sequence; below what was said before: nothing happens
 * Returns: KVP_OK; KVP_E_HANDLE: no such transfer; KVP_E_ARG: no such layer, or more than the
 *          sequence's tokens; KVP_E_STATE: it has ended. (It may end in this call: see info)
 * Thread:  cache. Cost: O(bytes sent)
 */
KVP_API kvp_status kvp_sender_ready(kvp_sender *sender, uint64_t id, uint32_t layer,
                                    uint32_t n_tokens);

/* Send what is ready, and take answers, KVP_PROGRESS_MESSAGES from each link at most. When all is
 * sent and the sequence's tokens are computed (kvp_seq_commit), the receiver learns it; its answer
 * ends the transfer.
 *
 * A transfer fails with
 *   KVP_E_HANDLE    the sequence was closed; KVP_E_STATE: truncated below what was ready, swapped
 *                   out; KVP_E_DROPPED: its window has dropped tokens that were not sent, were they
 *                   ready or not
 *   KVP_E_MISMATCH  the tokens are not the receiver's; KVP_E_UNKNOWN: the cache does not keep their
 *                   values, so they cannot be compared
 *   KVP_E_PEER      the link is broken, or the receiver's reason; or any that it gave (by_peer)
 *
 * Gives:   out_n_ended  as kvp_receiver_progress; may be NULL
 * Returns: KVP_OK
 * Thread:  cache; no other thread writes the slots that are ready. Blocks: never
 */
KVP_API kvp_status kvp_sender_progress(kvp_sender *sender, uint32_t *out_n_ended);

/* Read the state of a transfer. Returns: as kvp_receiver_info_get. Thread: read. */
KVP_API kvp_status kvp_sender_info_get(const kvp_sender *sender, uint64_t id,
                                       kvp_transfer_info *out_info);

/* Give up: the transfer fails with the caller's reason. The receiver is informed, and its transfer
 * fails. Returns: as kvp_receiver_abort. */
KVP_API kvp_status kvp_sender_abort(kvp_sender *sender, uint64_t id, kvp_status reason);

/* Forget a transfer that has ended; its id is stale. Returns: as kvp_receiver_close. */
KVP_API kvp_status kvp_sender_close(kvp_sender *sender, uint64_t id);

#ifdef __cplusplus
}
#endif
#endif
