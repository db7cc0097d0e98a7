/* kvpager/wire.h: worker messages. What a scheduler process tells its workers in each step.
 *
 *   scheduler                                        worker
 *   kvp_wire_config_of(cache, &config);              (the same numbers)
 *   kvp_wire_sender_create(&config, cache, ...);     kvp_wire_mirror_create(&config, ...);
 *   ... open, extend, commit, close ...
 *   kvp_wire_sender_encode(sender, &step, ...) --->  kvp_wire_mirror_apply(mirror, ..., &news);
 *                                                    kvp_wire_mirror_seq(mirror, id, &seq): the row
 *
 * The caller gives each sequence a small number, its worker id, from its first message to the one
 * that closes it. The sender remembers for each worker id what its workers have, and sends what
 * differs. For a new sequence that is its tokens and its whole row. For a decoding sequence it is
 * the new token and, once in block_tokens steps, one block id (a run of such sequences takes about
 * 3 bytes each). For any sequence it is entries that were replaced (copy-on-write, adopt) or
 * removed. The mirror rebuilds status, counts, last token and rows.
 *
 * Rules:
 *   R1  Messages of one sender have an epoch and a number: 1, 2, 3, ... A mirror takes each once
 *       and in order. A mirror that has missed a message continues with the next full-state
 *       message, which assumes nothing. The first message of a sender is a full one.
 *   R2  All workers of a sender get the same messages.
 *   R3  A message is taken whole or not at all: it is checked to its end before anything changes.
 *   R4  A worker has a sequence as it was in the last message that named it. A swapped sequence is
 *       not named; when it is back, it is named with its new row.
 *   R5  Nothing allocates after creation, nothing blocks, nothing reads a clock. The same calls
 *       give the same bytes.
 *   R6  With several layer groups a sequence has a row for each, in blocks of the group's S. An
 *       entry that a window has dropped is 0, as in the cache. Messages carry a sequence's windows
 *       when it is new and when they change, and its tree as it grows and when it is gone. The
 *       moves of what was accepted travel in the next message. A cache with one group, without
 *       windows and trees, sends nothing of this.
 *   R7  With recurrent state (states.h) a worker has the slots that a sequence reads and writes in
 *       its next step. The first forward pass after a hit, a checkpoint or a fork reads one slot
 *       and writes another; afterwards they are the same. With a ring it also has the ring's slots.
 *       Make a step's message before its commits: they change what is read. A checkpoint has no
 *       message of its own, because a worker never writes the slot again. Copies of states are
 *       copies of group n_groups, with slots as block ids and 1 token.
 *
 * The bytes are in docs/FORMATS.md. They carry token values: protect the channel as you protect
 * your users' prompts. The checksum finds damage; it is not a signature.
 */
#ifndef KVPAGER_WIRE_H
#define KVPAGER_WIRE_H

#include "types.h"
#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_WIRE_MAX_SEQS 16777216u

/* Bytes of a message's head: enough for kvp_wire_peek, and so to learn the length from a stream. */
#define KVP_WIRE_HEAD_BYTES 40u

/* Sizes of a sender and of its mirrors. A mirror refuses a message that does not fit its sizes
 * (KVP_E_TOO_SMALL). A sender never makes a message that a mirror of the same sizes refuses. */
typedef struct kvp_wire_config {
    size_t struct_size;       /* set by kvp_wire_config_init */
    uint32_t block_tokens;    /* S, as the cache's; a mirror of another S takes no message */
    uint32_t n_blocks;        /* N: the device's ids in rows and copies are below it */
    uint32_t host_blocks;     /* the host's ids in copies are below it; 0: no host tier (default) */
    uint32_t max_seqs;        /* worker ids are 0..max_seqs-1; at most KVP_WIRE_MAX_SEQS */
    uint32_t max_row_blocks;  /* M, of one sequence, in the group with the smallest S */
    uint32_t max_step_tokens; /* values in one message, full ones too */
    uint32_t max_copies;      /* copies in one message */
    uint64_t epoch;           /* of a sender: above that of every sender before it; >= 1. A mirror
                                 takes no notice of it */
    uint32_t n_groups;        /* layer groups, as the cache's; default 1; a mirror of another number
                                 takes no message */
    uint32_t max_tree_tokens; /* of one sequence's tree; default 0 */
    uint32_t max_moves;       /* moves in one message, of each group; default 0 */
    uint32_t reserved;        /* 0 */
    uint32_t state_slots;     /* slots of recurrent state: ids are below it; default 0: none. A
                                 sender's and its mirrors' are above 0 exactly if the cache's is */
    uint32_t host_state_slots;             /* the host's, in copies */
    uint32_t group_tokens[KVP_GROUPS_MAX]; /* [n_groups] S of each layer group; 0 (default):
                                              block_tokens; behind them: anything */
} kvp_wire_config;

/* Fill `config` with the sizes of the default cache configuration and epoch 1. A NULL config is
 * ignored. Thread: pure. */
KVP_API void kvp_wire_config_init(kvp_wire_config *config);

/* Check the sizes of a sender or a mirror, as the calls that create one do.
 * Gives: out_why, written always; may be NULL. Returns: KVP_OK; KVP_E_ARG. Thread: pure. */
KVP_API kvp_status kvp_wire_config_check(const kvp_wire_config *config, kvp_why *out_why);

/* Fill `config` so that every state of this cache fits.
 *
 * max_seqs, max_copies, groups, max_tree_tokens and slots of state are the cache's. epoch is 1.
 * With the smallest S of a group, max_row_blocks = ceil(max_seq_tokens / S). max_step_tokens =
 * max_seqs + 4 x max_seq_tokens: raise it if more than four long prompts arrive in one step.
 * max_moves = max_seqs x max_tree_tokens, or N x S if that is less.
 *
 * Returns: KVP_OK; KVP_E_ARG. Thread: read. */
KVP_API kvp_status kvp_wire_config_of(const kvp_cache *cache, kvp_wire_config *out_config);

/* ----------------------------------------------------------------------------------- the sender */

typedef struct kvp_wire_sender kvp_wire_sender;

/* Say how many bytes a sender needs: about 200 + 4 x n_groups x max_row_blocks
 * + 8 x max_tree_tokens for each worker id, and 136 with recurrent state. The system backs only
 * what is touched.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG when the size does not fit size_t. Thread: pure. */
KVP_API kvp_status kvp_wire_sender_bytes(const kvp_wire_config *config, size_t *out_bytes);

/* Create a sender for one cache.
 *
 * Takes:   config       copied; n_groups and the S of each must be the cache's, n_blocks,
 *                       host_blocks and slots not below the cache's, and state_slots 0 without
 *                       recurrent state
 *          cache        read by kvp_wire_sender_encode; must outlive the sender
 *          memory       NULL: allocated; else the caller's, 64-byte aligned, its content does not
 *                       matter, memory_bytes >= kvp_wire_sender_bytes
 * Gives:   out_sender
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG; KVP_E_TOO_SMALL when memory_bytes is too small;
 *          KVP_E_NO_MEMORY
 * Owns:    destroy it; the caller's memory stays the caller's, in use until then
 * Thread:  read
 * Cost:    O(max_seqs); the only call on a sender that allocates
 */
KVP_API kvp_status kvp_wire_sender_create(const kvp_wire_config *config, const kvp_cache *cache,
                                          void *memory, size_t memory_bytes,
                                          kvp_wire_sender **out_sender);

/* Destroy a sender. NULL is ignored. Its cache is not touched. */
KVP_API void kvp_wire_sender_destroy(kvp_wire_sender *sender);

/* One sequence of a step. Initialise it by name: {.seq = ..., ...}. */
typedef struct kvp_wire_item {
    kvp_seq seq;
    uint32_t worker_id;    /* 0..max_seqs-1 */
    uint32_t status;       /* the caller's own, 1..255: running, paused, ... */
    uint32_t step_tokens;  /* the caller's own, at most the sequence's tokens and nodes: how many of
                              them this step computes; the worker keeps it until a message has
                              another number */
    uint32_t first_token;  /* where values begin when the sequence is new to the worker, and in a
                              full message; 0: all; KVP_END: none (a fork, a decoding sequence) */
    const int32_t *tokens; /* [known_tokens] all values from position 0; NULL: ask the cache, which
                              is possible while it keeps them (kvp_seq_info.kept_tokens) */
} kvp_wire_item;

enum {
    KVP_WIRE_FULL = 1u /* assume nothing: items are all there is; sequences not named are gone */
};

/* What a message is made of. Initialise it by name: {.struct_size = sizeof(kvp_wire_step), ...}. */
typedef struct kvp_wire_step {
    size_t struct_size;
    uint32_t flags; /* KVP_WIRE_FULL; implied for a sender's first message */
    uint32_t n_items;
    const kvp_wire_item *items; /* [n_items] worker_id ascending: the order of the batch, too */
    const uint32_t *closed;     /* [n_closed] worker ids, ascending, that end here; an id may be
                                   given to a new sequence in the same step */
    uint32_t n_closed;
    uint32_t n_copies;
    const kvp_copy *copies;     /* [n_copies] as kvp_plan_take gave them */
    const kvp_slot_move *moves; /* [n_groups, max_moves] as kvp_seq_accept gave them since the
                                   message before */
    uint32_t n_moves;           /* of each group */
    uint32_t max_moves;         /* the distance of the groups in `moves` */
} kvp_wire_step;

/* Make the message of a step.
 *
 * Of a sequence that the worker knows, the values that were appended are sent. Values that the
 * worker has may have been rolled back and replaced while their computation was not over (from
 * computed - step_tokens of the last message on). A 64-bit hash of them detects this; then all
 * values from there on are sent.
 *
 * Example: 1,024 sequences each decoded one token; blocks of 16, a vocabulary of 128,256, ids of a
 * pool of 1,048,576 blocks in any order. Each takes 2.9 bytes of token, 0.2 of block id, 0.3 of
 * runs: 3.4 bytes together, with the head.
 *
 * Takes:   step         read during the call only
 *          capacity     of out_bytes; 0 asks for the size only: the message is not made
 * Gives:   out_bytes    [out_n_bytes]; what it holds after a failure is undefined
 *          out_n_bytes  written also on KVP_E_TOO_SMALL for a small buffer: the size needed
 * Returns: KVP_OK: the workers are taken to have it from now on; KVP_E_ARG: ids not ascending or
 *          out of range, a status or step_tokens out of range, an id that another sequence has, a
 *          closed id that no sequence has. Also a copy that names block or slot 0, or one that
 *          its tier lacks, or no layer group, or whose phase is below that of the copy before. Also
 *          a move of a slot that the device lacks, or whose places in blocks cannot be those of one
 *          token in each group; KVP_E_HANDLE; KVP_E_STATE: a sequence is swapped out (leave it out
 *          until it is back: R4; its copies travel), or has step_tokens and no slot of state to
 *          write (extend it); KVP_E_DROPPED: it has step_tokens, and its state is lost;
 *          KVP_E_UNKNOWN: the cache does not keep the values (give kvp_wire_item.tokens);
 *          KVP_E_TOO_SMALL: the buffer, or more values, copies, moves, nodes or blocks of a row
 *          than the configuration has (then out_n_bytes is not written); KVP_E_TOO_LONG: 4 GiB or
 *          more
 * After-failure: unchanged
 * Thread:  read (of the cache); the sender needs exclusive access
 * Cost:    O(groups of items + what is sent + tokens not computed, and of trees + blocks of rows
 *          with a risen version)
 */
KVP_API kvp_status kvp_wire_sender_encode(kvp_wire_sender *sender, const kvp_wire_step *step,
                                          void *out_bytes, size_t capacity, size_t *out_n_bytes);

/* Digest what the workers have after the last message: equal to kvp_wire_mirror_digest of a worker
 * that took it, on a machine of the same byte order; 0 for NULL. Thread: read. Cost: O(rows). */
KVP_API uint64_t kvp_wire_sender_digest(const kvp_wire_sender *sender);

/* ----------------------------------------------------------------------------------- the mirror */

/* The head of a message. */
typedef struct kvp_wire_head {
    uint64_t epoch;
    uint64_t number;  /* >= 1 */
    uint32_t full;    /* 1: assumes nothing */
    uint32_t n_bytes; /* of the whole message */
} kvp_wire_head;

/* Read the head of a message that may not be complete yet: the head has its length. The rest is not
 * verified; kvp_wire_mirror_apply does that.
 * Takes:   bytes        [n_bytes], n_bytes >= KVP_WIRE_HEAD_BYTES
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_FORMAT: no message, or cut; KVP_E_VERSION
 * Thread:  pure */
KVP_API kvp_status kvp_wire_peek(const void *bytes, size_t n_bytes, kvp_wire_head *out_head);

typedef struct kvp_wire_mirror kvp_wire_mirror;

/* Say how many bytes a mirror needs. About 80 + 4 x n_groups x max_row_blocks + 8 x max_tree_tokens
 * for each worker id, and 68 with recurrent state; 4 for each of max_step_tokens, 20 for each copy,
 * and 16 x n_groups for each move.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG when the size does not fit size_t. Thread: pure. */
KVP_API kvp_status kvp_wire_mirror_bytes(const kvp_wire_config *config, size_t *out_bytes);

/* Create a mirror: empty, waiting for a full-state message.
 * Takes:   memory       as for kvp_wire_sender_create
 * Returns: as kvp_wire_sender_create
 * Cost:    O(max_seqs); the only call on a mirror that allocates */
KVP_API kvp_status kvp_wire_mirror_create(const kvp_wire_config *config, void *memory,
                                          size_t memory_bytes, kvp_wire_mirror **out_mirror);

/* Destroy a mirror. NULL is ignored. */
KVP_API void kvp_wire_mirror_destroy(kvp_wire_mirror *mirror);

/* What a message said of one sequence. */
typedef struct kvp_wire_news_item {
    uint32_t worker_id;
    uint32_t is_new;       /* 1: not known before, or sent again by a full message */
    uint32_t from;         /* position of values[0]; older values from there on are void */
    uint32_t n_values;     /* from + n_values = known_tokens */
    const int32_t *values; /* [n_values] */
    uint32_t from_node;    /* nodes of its tree from there on are new, older ones void; the tree's
                              size when nothing of it has changed */
    uint32_t reserved;     /* 0 */
} kvp_wire_news_item;

/* What a message said. The arrays lie in the mirror, until it takes the next message. */
typedef struct kvp_wire_news {
    uint32_t full;
    uint32_t n_items;
    const kvp_wire_news_item *items; /* [n_items] worker_id ascending: the step's batch */
    const uint32_t *closed;          /* [n_closed] ascending; empty for a full message */
    uint32_t n_closed;
    uint32_t n_copies;
    const kvp_copy *copies;     /* [n_copies] the plan: run it before the forward pass */
    uint32_t n_moves;           /* of each group */
    const kvp_slot_move *moves; /* [n_groups, n_moves] run them before the plan */
} kvp_wire_news;

/* Take a message.
 *
 * It is checked to its end, and against what the mirror has, before anything is changed.
 *
 * Takes:   bytes        [n_bytes] exactly one message
 * Gives:   out_news     may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_FORMAT: cut, damaged or nonsense; KVP_E_VERSION: of another
 *          version of the format; KVP_E_STATE: stale, repeated, out of order, of another epoch, or
 *          not full while the mirror is empty. kvp_wire_peek and kvp_wire_mirror_info_get tell
 *          which. If the number is above the expected one, something was missed: ask for a full
 *          message; KVP_E_MISMATCH: of a cache with another n_groups or S of a group;
 *          KVP_E_TOO_SMALL: it does not fit the mirror's sizes
 * After-failure: unchanged, and the news of the message before are still there
 * Thread:  exclusive access to the mirror        Blocks: never
 * Cost:    O(n_bytes), and O(max_seqs) for a full one; allocates nothing
 */
KVP_API kvp_status kvp_wire_mirror_apply(kvp_wire_mirror *mirror, const void *bytes, size_t n_bytes,
                                         kvp_wire_news *out_news);

typedef struct kvp_wire_mirror_state {
    uint64_t epoch;  /* 0: empty, waits for a full-state message */
    uint64_t number; /* of the last message taken */
    uint32_t n_seqs; /* known now */
} kvp_wire_mirror_state;

/* Tell where the mirror stands. Returns: KVP_OK; KVP_E_ARG. Thread: read. */
KVP_API kvp_status kvp_wire_mirror_info_get(const kvp_wire_mirror *mirror,
                                            kvp_wire_mirror_state *out_state);

/* A sequence as the worker knows it: the words of kvp_seq_info. */
typedef struct kvp_wire_seq {
    uint32_t status; /* as the scheduler's; 0: no sequence has this id, and all else is 0 */
    uint32_t n_tokens;
    uint32_t known_tokens;
    uint32_t computed_tokens;
    uint32_t cached_tokens;
    uint32_t step_tokens;
    int32_t last_token;
    uint32_t n_blocks;  /* of group 0's row */
    const int32_t *row; /* [n_blocks] of group 0, in the mirror: at the same address for the same
                           worker id; the next group's is max_row_blocks apart, the next id's
                           n_groups x max_row_blocks */
    const kvp_window *windows;   /* [n_groups] in force; {0, 0}: none */
    uint32_t tree_tokens;        /* of its tree, behind its tokens */
    const int32_t *node_tokens;  /* [tree_tokens] */
    const int32_t *node_parents; /* [tree_tokens] as kvp_seq_tree gives them */
    uint32_t read_slot;          /* of recurrent state; 0: the initial state, or it is lost */
    uint32_t write_slot;         /* 0 only while step_tokens is 0, or without recurrent state */
    const int32_t *write_slots;  /* [n_write_slots] of state, in the order of tokens, as
                                    kvp_meta_state_rings: those of a ring, then write_slot */
    uint32_t n_write_slots;      /* 0: write_slot is 0; 1: no ring */
    uint32_t row_tokens; /* that every row has room for: that of a group with blocks of S has
                            kvp_blocks_for_tokens(S, row_tokens) entries */
} kvp_wire_seq;

/* Read one sequence.
 * Returns: KVP_OK, also for an id that no sequence has; KVP_E_ARG. Thread: read. Cost: O(1) */
KVP_API kvp_status kvp_wire_mirror_seq(const kvp_wire_mirror *mirror, uint32_t worker_id,
                                       kvp_wire_seq *out_seq);

/* Digest everything that the mirror knows of sequences; 0 for NULL. See kvp_wire_sender_digest. */
KVP_API uint64_t kvp_wire_mirror_digest(const kvp_wire_mirror *mirror);

#ifdef __cplusplus
}
#endif
#endif
