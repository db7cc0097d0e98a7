/* wire_pair: a sender and a mirror of a small cache with layer groups, one sequence, and messages
 * that are made by hand. */
#ifndef TEST_WIRE_PAIR_H
#define TEST_WIRE_PAIR_H

#include <string.h>

#include <kvpager/wire.h>

#include "wire/wire_bytes.h"
#include "world.h"

enum { ROOM = 4096 };

struct pair {
    world w;
    kvp_wire_config config;
    kvp_wire_sender *sender;
    kvp_wire_mirror *mirror;
    kvp_wire_item item; /* of worker id 3 */
    uint8_t bytes[ROOM];
    size_t n_bytes;
    kvp_wire_news news;
};

static inline void begin_as(struct pair *p, const kvp_config *config)
{
    memset(p, 0, sizeof *p);
    p->w = make_world(config);
    assert_ok(kvp_wire_config_of(p->w.cache, &p->config));
    assert_ok(kvp_wire_sender_create(&p->config, p->w.cache, NULL, 0, &p->sender));
    assert_ok(kvp_wire_mirror_create(&p->config, NULL, 0, &p->mirror));
    p->item = (kvp_wire_item){.worker_id = 3, .status = 1};
}

static inline void end(struct pair *p)
{
    kvp_wire_sender_destroy(p->sender);
    kvp_wire_mirror_destroy(p->mirror);
    end_world(&p->w);
}

#define scoped_pair ENDED_BY(end) struct pair

static inline kvp_wire_step step_of(const struct pair *p)
{
    return (kvp_wire_step){.struct_size = sizeof(kvp_wire_step), .n_items = 1, .items = &p->item};
}

static inline kvp_status encode(struct pair *p, const kvp_wire_step *step)
{
    return kvp_wire_sender_encode(p->sender, step, p->bytes, ROOM, &p->n_bytes);
}

/* Tells the worker, which must know then what the sender knows. */
static inline kvp_wire_seq tell(struct pair *p, const kvp_wire_step *step)
{
    kvp_wire_seq seq;
    assert_ok(encode(p, step));
    assert_ok(kvp_wire_mirror_apply(p->mirror, p->bytes, p->n_bytes, &p->news));
    assert_int_equal(kvp_wire_mirror_digest(p->mirror), kvp_wire_sender_digest(p->sender));
    assert_ok(kvp_wire_mirror_seq(p->mirror, 3, &seq));
    return seq;
}

static inline kvp_wire_seq tell_item(struct pair *p)
{
    const kvp_wire_step step = step_of(p);
    return tell(p, &step);
}

static inline void assert_rows(const struct pair *p, const kvp_wire_seq *seq)
{
    for (uint32_t group = 0; group < p->config.n_groups; group++) {
        const int32_t *row;
        uint32_t n;
        assert_ok(kvp_seq_row(p->w.cache, p->item.seq, group, &row, &n));
        const uint32_t S = p->config.group_tokens[group];
        assert_int_equal(kvp_blocks_for_tokens(S > 0 ? S : 4, seq->row_tokens), n);
        assert_true(group > 0 || seq->n_blocks == n);
        assert_memory_equal(seq->row + (size_t)group * p->config.max_row_blocks, row,
                            n * sizeof *row);
    }
}

/* -------------------------------------------------------------------------------------- by hand */

/* A full message, made by hand, for a mirror of two groups. */
struct by_hand {
    kvp_wire_config config;
    kvp_wire_mirror *mirror;
    uint64_t number;
    uint32_t grain; /* 0: blocks have one size */
};

/* Four worker ids, two layer groups with blocks of 4 tokens, of which there are ten; in the second
 * group of S tokens, if that is not 0. */
static inline void make_by_hand(struct by_hand *m, uint32_t S, uint32_t grain)
{
    memset(m, 0, sizeof *m);
    m->grain = grain;
    kvp_wire_config_init(&m->config);
    m->config.block_tokens = 4;
    m->config.group_tokens[1] = S;
    m->config.n_blocks = 10;
    m->config.max_seqs = 4;
    m->config.max_row_blocks = 4;
    m->config.n_groups = 2;
    m->config.max_tree_tokens = 4;
    m->config.max_moves = 2;
    assert_ok(kvp_wire_mirror_create(&m->config, NULL, 0, &m->mirror));
}

static inline kvp_status give(struct by_hand *m, uint32_t kind, uint32_t parts, const uint8_t *body,
                              size_t n_body)
{
    uint8_t bytes[KVP_WIRE_HEAD_BYTES + 64] = {'k', 'v', 'p', 'm'};
    const size_t n = KVP_WIRE_HEAD_BYTES + n_body;
    bytes[KVPI_WIRE_AT_VERSION] = KVPI_WIRE_VERSION;
    bytes[KVPI_WIRE_AT_KIND] = (uint8_t)kind;
    bytes[KVPI_WIRE_AT_GROUPS] = (uint8_t)m->config.n_groups;
    bytes[KVPI_WIRE_AT_PARTS] = (uint8_t)(parts | (m->grain > 0 ? KVPI_WIRE_SIZES : 0u));
    kvpi_bytes_store(bytes + KVPI_WIRE_AT_LENGTH, n, 4);
    kvpi_bytes_store(bytes + KVPI_WIRE_AT_BLOCK_TOKENS, m->grain > 0 ? m->grain : 4, 4);
    kvpi_bytes_store(bytes + KVPI_WIRE_AT_EPOCH, 1, 8);
    kvpi_bytes_store(bytes + KVPI_WIRE_AT_NUMBER, m->number + 1, 8);
    memcpy(bytes + KVP_WIRE_HEAD_BYTES, body, n_body);
    kvpi_bytes_store(bytes + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(bytes, n), 8);
    kvp_status status = kvp_wire_mirror_apply(m->mirror, bytes, n, NULL);
    m->number += status == KVP_OK;
    return status;
}

#define GIVE_FULL(m, parts, ...)                                                                   \
    give(m, KVPI_WIRE_FULL_STATE, parts, (const uint8_t[]){__VA_ARGS__},                           \
         sizeof((const uint8_t[]){__VA_ARGS__}))
#define GIVE_STEP(m, parts, ...)                                                                   \
    give(m, KVPI_WIRE_STEP, parts, (const uint8_t[]){__VA_ARGS__},                                 \
         sizeof((const uint8_t[]){__VA_ARGS__}))

#endif
