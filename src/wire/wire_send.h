/* wire_send: the sender's memory, and the step that it makes a message of. wire_send.c finds out
 * what has to be said, write.c writes it.
 */
#ifndef KVPI_WIRE_SEND_H
#define KVPI_WIRE_SEND_H

#include <kvpager/states.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>

#include "wire/wire_bytes.h"
#include "wire/wire_table.h"

enum { KVPI_WIRE_CHUNK = 256 }; /* tokens read from the cache at a time */

/* What is remembered of a sequence besides the table. */
struct kvpi_wire_memo {
    uint64_t handle;
    uint64_t hash; /* of values [base, known) */
    uint32_t base;
    uint64_t row_version; /* the sequence's, then: never wraps */
};

/* One item of the step being made. */
struct kvpi_wire_pending {
    struct kvpi_wire_seq now;
    struct kvpi_wire_memo memo;
    uint32_t id;
    int is_new;
    uint32_t kind;
    uint32_t from;      /* values [from, now.known) are sent */
    uint32_t same;      /* grains: leading entries of the rows that need no look */
    uint32_t more;      /* the second byte of bits */
    uint32_t from_node; /* nodes [from_node, now.nodes) are sent */
};

struct kvp_wire_sender {
    const kvp_cache *cache;
    kvp_wire_config config;
    uint64_t number; /* of the last message; never wraps */
    struct kvpi_wire_table table;
    struct kvpi_wire_memo *memos;      /* [max_seqs] */
    struct kvpi_wire_pending *pending; /* [max_seqs] */
    const int32_t **rows;              /* [max_seqs, n_groups] of the items, in the cache */
    kvp_window *windows;               /* [max_seqs, n_groups] of the items */
    int32_t *tokens;                   /* [max_tree_tokens] of one tree */
    int32_t *parents;                  /* [max_tree_tokens] */
    int32_t *writes; /* [max_seqs, KVP_STATE_RING_MAX] of the items, as the table's */
    uint32_t parts;  /* of the message being made: KVPI_WIRE_MOVES ... */
    uint32_t owned;
};

/* Gives the values of positions [from, from + n), n <= KVPI_WIRE_CHUNK, in the caller's array or in
 * chunk. */
static inline kvp_status kvpi_wire_load_values(const struct kvp_wire_sender *s,
                                               const kvp_wire_item *item, uint32_t from, uint32_t n,
                                               int32_t *chunk, const int32_t **out_values)
{
    if (item->tokens != NULL) {
        *out_values = item->tokens + from;
        return KVP_OK;
    }
    *out_values = chunk;
    return kvp_seq_tokens(s->cache, item->seq, from, n, chunk);
}

/* The place of an item's rows and windows. */
static inline size_t kvpi_wire_groups_at(const struct kvp_wire_sender *s,
                                         const struct kvpi_wire_pending *p)
{
    return (size_t)(p - s->pending) * s->config.n_groups;
}

static inline const int32_t *kvpi_wire_row_of(const struct kvp_wire_sender *s,
                                              const struct kvpi_wire_pending *p, uint32_t group)
{
    return s->rows[kvpi_wire_groups_at(s, p) + group];
}

/* Is the window of this group another one than the worker's? That of a new sequence has none. */
static inline int kvpi_wire_is_other_window(const struct kvp_wire_sender *s,
                                            const struct kvpi_wire_pending *p, uint32_t group)
{
    static const kvp_window none;
    const kvp_window *had = p->is_new ? &none : &kvpi_wire_windows(&s->table, p->id)[group];
    const kvp_window *has = &s->windows[kvpi_wire_groups_at(s, p) + group];
    return has->sink_tokens != had->sink_tokens || has->recent_tokens != had->recent_tokens;
}

/* The slots that it writes: those of its ring, then now.write_slot. */
static inline int32_t *kvpi_wire_writes_of(const struct kvp_wire_sender *s,
                                           const struct kvpi_wire_pending *p)
{
    return s->writes + (size_t)(p - s->pending) * KVP_STATE_RING_MAX;
}

/* The tree into the sender's memory. */
static inline kvp_status kvpi_wire_load_tree(const struct kvp_wire_sender *s, kvp_seq seq,
                                             uint32_t *out_n)
{
    return kvp_seq_tree(s->cache, seq, s->tokens, s->parents, s->config.max_tree_tokens, out_n);
}

/* Write the body of the message of the step that s->pending was made for. The counts in the table
 * are those of the message before. */
kvp_status kvpi_wire_write(const struct kvp_wire_sender *s, const kvp_wire_step *step, int full,
                           struct kvpi_wire_out *out);

#if KVP_CHECK >= 1
/* For tests: a sender that was just created goes on as if `start` messages were sent. The first one
 * must be a full one, as every sender's is. */
void kvpi_wire_start_at(struct kvp_wire_sender *s, uint64_t start);
#endif

#endif
