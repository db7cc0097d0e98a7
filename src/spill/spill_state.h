/* spill_state: a spill's memory, and what its files share.
 *
 *   spaces  [n_spaces]   namespaces: root digest and epoch
 *   asks    [max_asks]   requests that wait, or that something is still on its way for
 *   gets    [max_gets]   records that the store reads
 *   puts    [max_puts]   records that the store writes, or that wait for it
 *   known   [n_known]    keys of records that the store is thought to have
 *   marks   [blocks of both tiers]   digests of prefixes that end in these blocks
 *
 * The life of an ask:
 *
 *   FREE -> LOOKING -> LOOKED -> FOUND -> LOADING -> LOADED -> FREE
 *            |          |         |  prefix chosen,    |  loads are done; waits for loads
 *            |          |         |  loads begun       |  of others that it shares
 *            |          |         |                    v
 *            +----------+---------+------------------> answered, at any of them
 *
 *   LOOKING   its question to the store is not submitted yet
 *   LOOKED    the store looks which records it has
 *   FOUND     the bits are there; nothing is begun
 *   LOADING   host blocks are taken, gets are out or to be submitted
 *   LOADED    nothing is held any more
 *
 * An answer is apart from the work: a request that was answered (deadline, stop) or aborted leaves
 * its ask behind until nothing of it is on its way. An ask is free when its work is over and its
 * answer was taken.
 *
 * The life of a put:
 *
 *   FREE -> COPYING -> WRITING -> FREE       if its content went meanwhile, the record is dropped
 *              +----------------> FREE       its content went before
 *
 *   COPYING      the host blocks are not written yet, or the store has no place
 *   WRITING      the blocks are lent, the put is out
 *
 * Records of recurrent state are those of the state group; slots.c says how they are written.
 *
 * What the store points to lies in asks, gets and puts, and stays until the operation has ended.
 */
#ifndef KVPI_SPILL_STATE_H
#define KVPI_SPILL_STATE_H

#include <kvpager/spill.h>
#include <kvpager/states.h>

#define KVPI_SPILL_NONE UINT32_MAX

enum {
    KVPI_ASK_FREE,
    KVPI_ASK_LOOKING,
    KVPI_ASK_LOOKED,
    KVPI_ASK_FOUND,
    KVPI_ASK_LOADING,
    KVPI_ASK_LOADED
};

enum { KVPI_PUT_FREE, KVPI_PUT_COPYING, KVPI_PUT_WRITING };

/* Tags of operations: a number that hardly ever repeats, what, and the number of the ask, get or
 * put. Each place knows the tag of its operation that is out, 0: none. So an answer that comes
 * twice ends nothing that has its place by then. */
enum { KVPI_OP_HAVE = 1, KVPI_OP_GET, KVPI_OP_PUT, KVPI_OP_DROP, KVPI_OP_SYNC };

#define KVPI_OP_WHAT(tag) ((uint32_t)((tag) >> 32 & 0xFF))

/* A namespace as the store knows it. */
struct kvpi_spill_space {
    kvp_ns ns;       /* 0: the place is unused */
    uint64_t serial; /* of this name and epoch: never the same again */
    uint64_t number; /* kvp_namespace_number */
    kvp_digest root;
};

/* Row entries of a group that an ask loads at once. */
struct kvpi_spill_load {
    uint64_t number; /* kvp_load.number */
    kvp_range entries;
    uint32_t group;
};

#define KVPI_SPILL_LOADS (2 * KVP_GROUPS_MAX)

struct kvpi_spill_ask {
    uint64_t tag; /* of the question that is out */
    uint32_t state;
    uint32_t waits;      /* 1: its request was not answered */
    uint32_t has_answer; /* 1: the answer is to be given */
    uint32_t is_void;    /* 1: what was asked for must not be loaded any more */
    uint64_t space;      /* serial */
    kvp_ns ns;
    uint64_t asked_ns;
    uint64_t deadline_ns;
    kvp_spill_answer answer;
    kvp_prompt prompt;              /* into the arrays below */
    kvp_range uncached;             /* of the prompt */
    uint32_t n_tokens;              /* of the whole prompt */
    uint32_t hit_tokens;            /* when it was asked */
    uint32_t found_tokens;          /* hit when its prefix was chosen */
    uint32_t is_part;               /* 1: of all that the store has, that is a part */
    uint32_t n_records;             /* that may be loaded */
    uint32_t first[KVP_GROUPS_MAX]; /* record that the store was asked for, of each kind */
    uint32_t n_lookups;

    /* LOADING */
    uint64_t after;       /* plan */
    uint64_t need_blocks; /* at most */
    uint32_t start;       /* the first record that is read */
    uint64_t left_bytes;  /* of records to be read */
    uint32_t n_loads;
    uint32_t n_gets_out;
    uint32_t cursor; /* record x kinds + group: what is behind it was submitted, or is not needed */
    uint32_t end;    /* of the cursor */
    uint32_t n_shared; /* bits in `on` */
    struct kvpi_spill_load loads[KVPI_SPILL_LOADS];

    int32_t *tokens;     /* [max_tokens] */
    kvp_digest *digests; /* [max_records] of the last block of each record */
    kvp_digest *lookups; /* [max_lookups] keys */
    uint64_t *bits;      /* of lookups */
    kvp_key *keys;       /* [max_keys] */
    uint8_t *key_bytes;  /* [max_keys][KVP_KEY_MAX_BYTES] */
    int32_t *blocks;     /* [n_kinds][max_entries] that are loaded; 0: none */
    uint8_t *whole;      /* [n_kinds][max_entries] */
    uint64_t *on;        /* [ceil(max_asks / 64)] asks whose loads it shares */
};

struct kvpi_spill_get {
    uint64_t tag;
    uint32_t ask; /* KVPI_SPILL_NONE: the place is unused */
    uint32_t group;
    uint32_t record;
    uint32_t scratch; /* KVPI_SPILL_NONE: all blocks are loaded */
    kvp_identity identity;
    kvp_key *keys; /* [max_keys] */
    void *addresses[KVP_RECORD_BLOCKS_MAX];
};

/* A slot of state on its way to the host. */
struct kvpi_spill_slot {
    kvp_seq seq;      /* holds it; 0: nothing does */
    int32_t slot;     /* of the device */
    uint32_t place;   /* that it is copied to; KVPI_SPILL_NONE: the put is of no state */
    uint32_t is_told; /* the copy was given to the engine */
    uint64_t plan;    /* with which it runs */
};

struct kvpi_spill_put {
    uint64_t tag;
    uint32_t state;
    uint32_t is_doomed;    /* WRITING: the record is dropped when it is there */
    uint32_t parent;       /* put that must be submitted before; KVPI_SPILL_NONE: none */
    uint32_t n_children;   /* puts of which it is the parent, at most */
    uint64_t parent_order; /* of that put, while it is the same */
    uint64_t order;        /* of making */
    uint64_t after;        /* plan that writes its blocks */
    uint64_t space;        /* serial */
    uint64_t bytes;
    kvp_identity identity;
    kvp_digest key;
    struct kvpi_spill_slot slot;            /* of a state */
    uint32_t n_blocks;                      /* that are lent: of the record; of a state 1; 0: the
                                               engine gave the bytes */
    uint32_t kv_group;                      /* of these blocks */
    kvp_hash hashes[KVP_RECORD_BLOCKS_MAX]; /* of each block's deepest unit */
    uint64_t generations[KVP_RECORD_BLOCKS_MAX];
    int32_t blocks[KVP_RECORD_BLOCKS_MAX]; /* of the host */
    void *addresses[KVP_RECORD_BLOCKS_MAX];
    int32_t *tokens; /* [record_tokens] */
    kvp_key *keys;   /* [max_keys] */
    uint8_t *key_bytes;
    uint8_t *given; /* [record] that the engine gave; NULL: blocks are lent */
};

/* What may be written now. */
struct kvpi_spill_budget {
    uint64_t allowance; /* bytes, by put_bytes_s */
    uint64_t largest;   /* bytes of what was written or might have been */
    uint64_t since_ns;
    uint64_t day;
    uint64_t day_bytes; /* written on that day */
};

/* A store that takes no puts is left alone for a while: what is offered to it is copied, digested
 * and refused, each time that it is hit. */
struct kvpi_spill_refusals {
    uint32_t n; /* in a row */
    uint64_t rest_ns;
    uint64_t until_ns;
};

/* How fast records come. */
struct kvpi_spill_meter {
    uint64_t since_ns;
    uint64_t busy_ns;
    uint64_t bytes;
    uint32_t refusals; /* requests that computing was faster for */
};

/* Records with wrong KV, until the store has said that it has dropped them. */
struct kvpi_spill_wrong {
    uint64_t tag;
    kvp_digest *keys; /* [KVP_STORE_KEYS_MAX + max_puts] in the order of asking */
    uint64_t *marks;  /* [the same] of the keys, sorted */
    uint32_t n_keys;
    uint32_t n_marks;
    uint32_t n_out;     /* the first keys, of the drop that is out; 0: none is */
    uint32_t is_failed; /* the last one did */
    uint32_t rests;     /* 1: not in this step */
};

/* What kvp_spill_flush has come to. */
enum {
    KVPI_FLUSH_IDLE,
    KVPI_FLUSH_MIRROR, /* device blocks are copied to the host */
    KVPI_FLUSH_COPIES, /* the copies run */
    KVPI_FLUSH_OFFER,
    KVPI_FLUSH_DRAIN, /* puts end */
    KVPI_FLUSH_SYNC,
    KVPI_FLUSH_SYNCED
};

struct kvpi_spill_flush {
    uint64_t tag;   /* of the sync */
    uint64_t after; /* the plan of the last mirror, by number */
    uint32_t state;
    uint32_t n_blocks; /* that are left, the next one last; MIRROR: all of them */
    uint32_t next;     /* MIRROR */
    uint32_t is_late;
    uint32_t result;
    uint32_t mask;    /* of index */
    int32_t *blocks;  /* [max of n_blocks, host_blocks] the coldest first */
    int32_t *index;   /* [mask + 1] host blocks by hash and group; 0: none */
    int32_t *tokens;  /* [max_tokens] */
    kvp_hash *hashes; /* [max_tokens / U] */
    kvp_key *keys;    /* [max_keys] */
};

/* The digest of the prefix that ends in a block, when the block is the last one of a record. It was
 * made of tokens that the cache had proven to be the block's content. While the generation stays
 * the block has that content, so the digest is believed; no hash would be. */
struct kvpi_spill_mark {
    uint64_t generation; /* of the block */
    uint64_t space;      /* serial; 0: there is no digest */
    kvp_digest digest;
    uint32_t n_tokens; /* of the prefix */
    uint32_t next;     /* records before this one were done when the prefix was last offered */
};

/* A prefix whose records may be written: keys and rows are in the scratch arrays, and so are the
 * tokens and digests of records from `base` on. */
struct kvpi_spill_prefix {
    const struct kvpi_spill_space *space;
    uint32_t n_tokens; /* of whole records */
    uint32_t n_keys;
    uint32_t tier;        /* of the rows */
    uint32_t is_unproven; /* 1: the rows were found by hashes: their marks are not its own */
    uint32_t base;        /* records that have marks */
    uint32_t next;        /* records that need not be offered again; 0: not known */
    uint32_t has_state;   /* 1: unproven, and a checkpoint may be at its end */
    kvp_seq seq;          /* that it is of, unless it is unproven */
};

struct kvp_spill {
    kvp_spill_config config;
    kvp_config cache;       /* its configuration */
    uint32_t *uncached;     /* [cache.n_uncached_tokens] sorted */
    uint32_t record_tokens; /* T: of every record, a multiple of each S */
    uint32_t n_parts;       /* that a record has digests of: to the store, blocks */
    uint32_t part_tokens;   /* of these */
    uint32_t max_entries;   /* of a prompt, in any group */
    uint32_t max_records;
    uint32_t max_lookups;
    uint64_t record_bytes[KVP_GROUPS_MAX];
    uint32_t pieces[KVP_GROUPS_MAX]; /* a record of each kind has these: its last entries; a slot */
    uint32_t n_kinds;     /* of records: one for each layer group, and for the state group */
    uint32_t n_loads;     /* of a request, at most */
    uint32_t n_slots;     /* states that are written, or wait for it */
    uint64_t slots_used;  /* bits of places that states are copied to */
    uint64_t most_blocks; /* of the host, for one load */
    kvp_digester *digester;
    int is_stopping;
    int is_broken;  /* the cache was reset, or the store was polled, by others */
    uint32_t n_ops; /* submitted, not ended */
    uint64_t n_tags;
    uint64_t serial;
    uint64_t order;
    uint64_t now_ns; /* of the newest call */
    uint64_t plans_done;
    uint32_t n_looks; /* prompts that may still be looked at in this call */

    struct kvpi_spill_space *spaces;
    struct kvpi_spill_ask *asks;
    uint32_t *queue; /* [n_queue] asks that are not free, in the order of asking */
    uint32_t n_queue;
    uint32_t n_waiting;
    struct kvpi_spill_get *gets;
    uint32_t n_gets;
    uint64_t get_bytes;
    uint64_t queued_bytes;
    uint8_t *scratch; /* [n_scratch][record] */
    uint8_t *scratch_used;
    size_t scratch_bytes;
    struct kvpi_spill_put *puts;
    uint32_t *put_queue; /* [n_puts] in the order of making */
    uint32_t *put_free;  /* [max_puts - n_puts] those that are not in the queue */
    uint64_t *put_marks; /* [max_puts] of keys; 0: the record is not going to be stored */
    uint32_t n_puts;
    uint64_t put_bytes;
    uint64_t *known;
    uint32_t known_mask;
    uint64_t n_gone;               /* records that the store had lost when `known` was empty last */
    struct kvpi_spill_mark *marks; /* [n_blocks + host_blocks] */
    struct kvpi_spill_wrong wrong;
    struct kvpi_spill_flush flush;
    struct kvpi_spill_budget budget;
    struct kvpi_spill_refusals refusals;
    struct kvpi_spill_meter meter;
    uint64_t load_bytes_s;
    uint64_t compute_tokens_s;
    kvp_spill_stats stats;

    /* Scratch memory of one call. */
    int32_t *tokens;     /* [max_tokens + 1] */
    kvp_digest *digests; /* [max_records x n_parts] */
    kvp_key *keys;       /* [max_keys] */
    uint8_t *key_bytes;  /* [max_keys][KVP_KEY_MAX_BYTES] */
    int32_t *rows;       /* [n_groups][max_entries] */
    uint8_t *feasible;   /* [max_records] */
    uint8_t *whole;      /* [max_entries] */
};

static inline uint32_t kvpi_spill_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Is it the state group? */
static inline int kvpi_spill_is_state(const kvp_spill *spill, uint32_t group)
{
    return group == spill->cache.n_groups;
}

/* 1: the cache has recurrent state; 0. */
static inline uint32_t kvpi_spill_has_states(const kvp_spill *spill)
{
    return spill->n_kinds - spill->cache.n_groups;
}

/* S of a group; of the state group the cache's. */
static inline uint32_t kvpi_spill_block_tokens(const kvp_spill *spill, uint32_t group)
{
    return kvpi_spill_is_state(spill, group) ? spill->cache.block_tokens
                                             : spill->cache.groups[group].block_tokens;
}

/* Row entries of a group in a record. */
static inline uint32_t kvpi_spill_entries(const kvp_spill *spill, uint32_t group)
{
    return spill->record_tokens / kvpi_spill_block_tokens(spill, group);
}

/* The digest of a record, of those in the scratch array. */
static inline const kvp_digest *kvpi_spill_digest(const kvp_spill *spill, uint32_t record)
{
    return &spill->digests[(record + 1) * spill->n_parts - 1];
}

/* The tag of the next operation. */
static inline uint64_t kvpi_spill_tag(kvp_spill *spill, uint32_t what, uint32_t number)
{
    return (spill->n_tags++ & 0x7FFFFF) << 40 | (uint64_t)what << 32 | number;
}

/* records.c: is a record thought to be stored? */
void kvpi_records_know(kvp_spill *spill, const kvp_digest *key);
void kvpi_records_forget(kvp_spill *spill, const kvp_digest *key);
/* Eight bytes of a key, never 0. */
uint64_t kvpi_records_mark_of(const kvp_digest *key);
int kvpi_records_is_known(const kvp_spill *spill, const kvp_digest *key);
/* With config.give: nothing is, once the store has lost half of what it holds. */
void kvpi_records_tick(kvp_spill *spill);

/* rates.c */

/* May a record of so many bytes be written now? */
int kvpi_rates_may_put(kvp_spill *spill, uint64_t n_bytes);
/* It is going to be. */
void kvpi_rates_put(kvp_spill *spill, uint64_t n_bytes);
/* A request is computed because that is faster. */
void kvpi_rates_refused(kvp_spill *spill);
/* It is `now_ns`, or later than that. */
void kvpi_rates_tick(kvp_spill *spill, uint64_t now_ns);

/* epochs.c */
const struct kvpi_spill_space *kvpi_epochs_find(const kvp_spill *spill, kvp_ns ns);
/* NULL: its name or epoch is another one by now. */
const struct kvpi_spill_space *kvpi_epochs_serial(const kvp_spill *spill, uint64_t serial);

/* records.c */

/* Entries of a group that a prefix keeps: [0, sinks) and [recent, n), of n = n_tokens / S, with S
 * the group's. */
struct kvpi_kept {
    uint32_t sinks;
    uint32_t recent;
    uint32_t n;
};
struct kvpi_kept kvpi_records_kept(const kvp_spill *spill, uint32_t group, uint32_t n_tokens,
                                   uint32_t prompt_tokens);
/* Has the group no window? */
int kvpi_records_is_full(const kvp_spill *spill, uint32_t group);
/* Tokens at the beginning that its window keeps. */
uint32_t kvpi_records_sinks(const kvp_spill *spill, uint32_t group);
/* The lookups of a group of an ask: [*out_begin, what is returned). */
uint32_t kvpi_records_lookups(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                              uint32_t group, uint32_t *out_begin);
/* A record that an ask has asked for, and those behind it, are not known to be stored; nor are the
 * states that go with them. */
void kvpi_records_forget_from(kvp_spill *spill, const struct kvpi_spill_ask *ask, uint32_t group,
                              uint32_t record);
/* The keys that touch [begin, end): copied to out. */
uint32_t kvpi_records_keys(const kvp_key *keys, uint32_t n_keys, uint32_t begin, uint32_t end,
                           kvp_key *out);
kvp_status kvpi_records_key(kvp_spill *spill, const kvp_digest *digest, uint32_t group,
                            kvp_digest *out_key);
/* Copy the keys' bytes to [n_keys][KVP_KEY_MAX_BYTES]. */
void kvpi_records_keep_keys(kvp_key *keys, uint32_t n_keys, uint8_t *bytes);
void *kvpi_records_address(const kvp_spill *spill, uint32_t group, int32_t block);
/* The group of the record that must be stored before this one; KVPI_SPILL_NONE: none. For a state
 * it is the one with the same end, else the one before. */
uint32_t kvpi_records_before(const kvp_spill *spill, uint32_t group, uint32_t record);
/* The identity of record `record` of a group; parent and keys are left out. */
kvp_identity kvpi_records_identity(const kvp_spill *spill, const struct kvpi_spill_space *space,
                                   uint32_t group, uint32_t record);
/* Digests of the blocks of a prefix, into the scratch array. */
kvp_status kvpi_records_digests(kvp_spill *spill, const kvp_digest *root, const kvp_hash_input *of);
/* Has a record a last block, in a row of a sequence, that can be marked? */
int kvpi_records_has_end(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                         uint32_t record);
/* The mark of that block; NULL: there is none. */
struct kvpi_spill_mark *kvpi_records_recall(const kvp_spill *spill,
                                            const struct kvpi_spill_prefix *prefix,
                                            uint32_t record);
/* Mark the last blocks of a record with its digest. */
void kvpi_records_mark(kvp_spill *spill, const struct kvpi_spill_prefix *prefix, uint32_t record,
                       const kvp_digest *digest, uint32_t next);

/* puts.c */

/* A put that is not in the queue; NULL: there is none. */
struct kvpi_spill_put *kvpi_puts_free(kvp_spill *spill);
/* It comes into the queue. */
void kvpi_puts_add(kvp_spill *spill, struct kvpi_spill_put *put);
/* The put of a record; NULL: there is none. */
struct kvpi_spill_put *kvpi_puts_find(kvp_spill *spill, const kvp_digest *key);
/* It is over. */
void kvpi_puts_end(kvp_spill *spill, struct kvpi_spill_put *put);
/* Puts that are over leave the queue. */
void kvpi_puts_sweep(kvp_spill *spill);

/* writes.c */

/* Submit what can be submitted. */
void kvpi_writes_work(kvp_spill *spill);
void kvpi_writes_ended(kvp_spill *spill, uint32_t number, uint32_t result);
/* Drop what waits to be written under a namespace's serial; 0: all. doom: what is being written is
 * taken back. */
void kvpi_writes_forget(kvp_spill *spill, uint64_t serial, int doom);

/* offer.c */

/* Make digests of the records from `base` on, whose tokens are there, and puts of the records that
 * are not known to be stored. */
kvp_status kvpi_offer_prefix(kvp_spill *spill, struct kvpi_spill_prefix *prefix);
/* Make a put of the state after the prefix, if there is one that is not known to be stored. Its
 * records of KV were offered. */
kvp_status kvpi_offer_state(kvp_spill *spill, struct kvpi_spill_prefix *prefix);
/* May any record be written now? */
int kvpi_offer_has_place(kvp_spill *spill);

/* slots.c */

/* Hold the checkpoint after the prefix, and a place to copy it to. KVP_E_DROPPED: there is no
 * checkpoint; KVP_E_AGAIN: no place. */
kvp_status kvpi_slots_hold(kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                           struct kvpi_spill_put *put);
/* Sequences of slots whose copies have run are closed. */
void kvpi_slots_work(kvp_spill *spill);
/* The slot of a put is needed no more. */
void kvpi_slots_end(kvp_spill *spill, struct kvpi_spill_put *put);
/* Where its state lies. */
void *kvpi_slots_address(const kvp_spill *spill, const struct kvpi_spill_put *put);

/* wrong.c */

/* Tell the store what is to be dropped. */
void kvpi_wrong_work(kvp_spill *spill);
void kvpi_wrong_ended(kvp_spill *spill, uint32_t result);
/* Is the record to be dropped, as far as the store has said? */
int kvpi_wrong_has(const kvp_spill *spill, const kvp_digest *key);
/* Have so many records to be dropped that no more may be written? */
int kvpi_wrong_is_full(const kvp_spill *spill);
/* A record is to be dropped: for kvpi_wrong_has from the next kvpi_wrong_work on. */
void kvpi_wrong_add(kvp_spill *spill, const kvp_digest *key);
/* The record of a put is. */
void kvpi_wrong_put(kvp_spill *spill, const struct kvpi_spill_put *put);
/* Who has asked for the record must not load it. */
void kvpi_wrong_void(kvp_spill *spill, uint64_t space, uint32_t record, const kvp_digest *digest);

/* prove.c */

/* Is the content of a host block that of the first n_tokens tokens of the prefix, keys and all? */
int kvpi_prove_block(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix, int32_t block,
                     uint32_t n_tokens);
/* Find the rows of a prefix by hashes, among the host blocks that were indexed. */
void kvpi_prove_index(kvp_spill *spill);
kvp_status kvpi_prove_rows(kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                           const kvp_hash *root);

/* flush.c */
void kvpi_flush_synced(kvp_spill *spill, uint32_t result);

#endif
