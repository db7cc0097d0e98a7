/* See seed_manager.h. The names of functions and fields are those of nano-vllm's block manager.
 *
 *   blocks            [n_blocks]   reference count, hash, the tokens it was sealed with
 *   hash_to_block_id  buckets of entries, one allocation each
 *   free_block_ids    a queue in an array of twice the size: [ ... head ids tail ... ]; an append
 *                     at the end of the array moves everything to its front
 */
#define XXH_INLINE_ALL

#include "seed_manager.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NO_HASH UINT64_MAX

typedef struct seed_block {
    uint64_t hash; /* NO_HASH: must not be shared yet */
    int32_t *token_ids;
    uint32_t ref_count;
    bool used;
} seed_block;

typedef struct entry {
    uint64_t hash;
    int32_t block_id;
    struct entry *next;
} entry;

struct seed_manager {
    uint32_t n_blocks;
    uint32_t block_tokens;
    seed_block *blocks;
    entry **buckets;
    uint64_t bucket_mask;
    int32_t *free_block_ids; /* [2 * n_blocks] */
    uint32_t head;
    uint32_t tail;
};

/* The original raises; so does this, in every build. */
static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "seed_manager: %s\n", what);
        abort();
    }
}

static void *allocate_bytes(size_t n_bytes)
{
    void *bytes = malloc(n_bytes ? n_bytes : 1);
    require(bytes != NULL, "out of memory");
    return bytes;
}

static void *grow(void *bytes, size_t n_bytes)
{
    bytes = realloc(bytes, n_bytes);
    require(bytes != NULL, "out of memory");
    return bytes;
}

/* --------------------------------------------------------------------------- hash_to_block_id */

static entry **find_entry(const seed_manager *m, uint64_t hash)
{
    entry **at = &m->buckets[hash & m->bucket_mask];
    while (*at && (*at)->hash != hash)
        at = &(*at)->next;
    return at;
}

static int32_t map_get(const seed_manager *m, uint64_t hash)
{
    entry *found = *find_entry(m, hash);
    return found ? found->block_id : -1;
}

static void map_set(seed_manager *m, uint64_t hash, int32_t block_id)
{
    entry **at = find_entry(m, hash);
    if (!*at) {
        *at = allocate_bytes(sizeof **at);
        **at = (entry){.hash = hash};
    }
    (*at)->block_id = block_id;
}

static void map_remove(seed_manager *m, uint64_t hash, int32_t block_id)
{
    entry **at = find_entry(m, hash);
    entry *found = *at;
    if (found && found->block_id == block_id) {
        *at = found->next;
        free(found);
    }
}

/* ------------------------------------------------------------------------------ free_block_ids */

static void queue_append(seed_manager *m, int32_t block_id)
{
    if (m->tail == 2 * m->n_blocks) {
        uint32_t n = m->tail - m->head;
        memmove(m->free_block_ids, m->free_block_ids + m->head, n * sizeof(int32_t));
        m->head = 0;
        m->tail = n;
    }
    m->free_block_ids[m->tail++] = block_id;
}

/* The linear search that kvpager exists to avoid. */
static void queue_remove(seed_manager *m, int32_t block_id)
{
    uint32_t at = m->head;
    while (at < m->tail && m->free_block_ids[at] != block_id)
        at++;
    require(at < m->tail, "the block is not free");
    if (at == m->head) {
        m->head++;
        return;
    }
    memmove(m->free_block_ids + at, m->free_block_ids + at + 1,
            (m->tail - at - 1) * sizeof(int32_t));
    m->tail--;
}

/* -------------------------------------------------------------------------------------- blocks */

static uint64_t compute_hash(const seed_manager *m, const int32_t *token_ids, uint64_t prefix)
{
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    if (prefix != NO_HASH)
        XXH64_update(&state, &prefix, sizeof prefix);
    XXH64_update(&state, token_ids, m->block_tokens * sizeof *token_ids);
    return XXH64_digest(&state);
}

static void update_block(seed_manager *m, int32_t block_id, uint64_t hash, const int32_t *token_ids)
{
    seed_block *block = &m->blocks[block_id];
    size_t n_bytes = m->block_tokens * sizeof *token_ids;
    free(block->token_ids);
    block->token_ids = allocate_bytes(n_bytes);
    memcpy(block->token_ids, token_ids, n_bytes);
    block->hash = hash;
    map_set(m, hash, block_id);
}

static void reset_block(seed_manager *m, int32_t block_id)
{
    seed_block *block = &m->blocks[block_id];
    if (block->hash != NO_HASH)
        map_remove(m, block->hash, block_id);
    free(block->token_ids);
    *block = (seed_block){.hash = NO_HASH, .ref_count = 1, .used = true};
}

static void allocate_block(seed_manager *m, int32_t block_id)
{
    require(m->blocks[block_id].ref_count == 0, "the block is in use");
    queue_remove(m, block_id);
    reset_block(m, block_id);
}

static void allocate_cached_block(seed_manager *m, int32_t block_id)
{
    seed_block *block = &m->blocks[block_id];
    require(block->ref_count == 0, "the block is in use");
    queue_remove(m, block_id);
    block->ref_count = 1;
    block->used = true;
}

static int32_t allocate_head(seed_manager *m)
{
    require(m->head < m->tail, "no free block");
    int32_t block_id = m->free_block_ids[m->head];
    allocate_block(m, block_id);
    return block_id;
}

static void table_append(seed_sequence *s, int32_t block_id)
{
    if (s->n_blocks == s->capacity_blocks) {
        s->capacity_blocks = s->capacity_blocks ? 2 * s->capacity_blocks : 8;
        s->block_table = grow(s->block_table, s->capacity_blocks * sizeof *s->block_table);
    }
    s->block_table[s->n_blocks++] = block_id;
}

/* ------------------------------------------------------------------------------------- manager */

seed_manager *seed_manager_create(uint32_t n_blocks, uint32_t block_tokens, const int32_t *order)
{
    seed_manager *m = allocate_bytes(sizeof *m);
    uint64_t n_buckets = 1;
    while (n_buckets < n_blocks)
        n_buckets *= 2;
    *m = (seed_manager){.n_blocks = n_blocks,
                        .block_tokens = block_tokens,
                        .blocks = allocate_bytes(n_blocks * sizeof *m->blocks),
                        .buckets = allocate_bytes(n_buckets * sizeof *m->buckets),
                        .bucket_mask = n_buckets - 1,
                        .free_block_ids =
                            allocate_bytes(2 * (size_t)n_blocks * sizeof *m->free_block_ids)};
    for (uint64_t i = 0; i < n_buckets; i++)
        m->buckets[i] = NULL;
    for (uint32_t i = 0; i < n_blocks; i++) {
        m->blocks[i] = (seed_block){.hash = NO_HASH};
        queue_append(m, order ? order[i] : (int32_t)i);
    }
    return m;
}

void seed_manager_destroy(seed_manager *m)
{
    if (!m)
        return;
    for (uint64_t i = 0; i <= m->bucket_mask; i++) {
        for (entry *at = m->buckets[i], *next; at; at = next) {
            next = at->next;
            free(at);
        }
    }
    for (uint32_t i = 0; i < m->n_blocks; i++)
        free(m->blocks[i].token_ids);
    free(m->blocks);
    free(m->buckets);
    free(m->free_block_ids);
    free(m);
}

uint32_t seed_n_free(const seed_manager *m)
{
    return m->tail - m->head;
}

/* ------------------------------------------------------------------------------------ sequence */

seed_sequence *seed_sequence_create(const int32_t *tokens, uint32_t n_tokens)
{
    seed_sequence *s = allocate_bytes(sizeof *s);
    *s = (seed_sequence){.n_tokens = n_tokens, .capacity_tokens = n_tokens};
    s->tokens = allocate_bytes(n_tokens * sizeof *tokens);
    memcpy(s->tokens, tokens, n_tokens * sizeof *tokens);
    return s;
}

void seed_sequence_append(seed_sequence *s, int32_t token)
{
    if (s->n_tokens == s->capacity_tokens) {
        s->capacity_tokens = s->capacity_tokens ? 2 * s->capacity_tokens : 16;
        s->tokens = grow(s->tokens, s->capacity_tokens * sizeof *s->tokens);
    }
    s->tokens[s->n_tokens++] = token;
}

void seed_sequence_destroy(seed_sequence *s)
{
    if (!s)
        return;
    free(s->tokens);
    free(s->block_table);
    free(s);
}

/* ---------------------------------------------------------------------------------- operations */

static uint32_t blocks_of(const seed_manager *m, const seed_sequence *s)
{
    return (s->n_tokens + m->block_tokens - 1) / m->block_tokens;
}

bool seed_can_allocate(const seed_manager *m, const seed_sequence *s)
{
    return seed_n_free(m) >= blocks_of(m, s);
}

void seed_allocate(seed_manager *m, seed_sequence *s)
{
    require(s->n_blocks == 0, "the sequence has blocks");
    uint64_t hash = NO_HASH;
    bool cache_miss = false;
    for (uint32_t i = 0; i < blocks_of(m, s); i++) {
        const int32_t *token_ids = s->tokens + (size_t)i * m->block_tokens;
        bool full = s->n_tokens - i * m->block_tokens >= m->block_tokens;
        hash = full ? compute_hash(m, token_ids, hash) : NO_HASH;
        int32_t block_id = full ? map_get(m, hash) : -1;
        if (block_id == -1 || memcmp(m->blocks[block_id].token_ids, token_ids,
                                     m->block_tokens * sizeof *token_ids) != 0)
            cache_miss = true;
        if (cache_miss) {
            block_id = allocate_head(m);
            if (full)
                update_block(m, block_id, hash, token_ids);
        } else {
            s->n_cached_tokens += m->block_tokens;
            if (m->blocks[block_id].used)
                m->blocks[block_id].ref_count++;
            else
                allocate_cached_block(m, block_id);
        }
        table_append(s, block_id);
    }
}

void seed_deallocate(seed_manager *m, seed_sequence *s)
{
    for (uint32_t i = s->n_blocks; i-- > 0;) {
        seed_block *block = &m->blocks[s->block_table[i]];
        if (--block->ref_count == 0) {
            block->used = false;
            queue_append(m, s->block_table[i]);
        }
    }
    s->n_cached_tokens = 0;
    s->n_blocks = 0;
}

bool seed_can_append(const seed_manager *m, const seed_sequence *s)
{
    return seed_n_free(m) >= (s->n_tokens % m->block_tokens == 1);
}

void seed_may_append(seed_manager *m, seed_sequence *s)
{
    int32_t last = s->block_table[s->n_blocks - 1];
    if (s->n_tokens % m->block_tokens == 1) {
        require(m->blocks[last].hash != NO_HASH, "a full block is not sealed");
        table_append(s, allocate_head(m));
    } else if (s->n_tokens % m->block_tokens == 0) {
        require(m->blocks[last].hash == NO_HASH, "a block is sealed before it is full");
        uint64_t prefix =
            s->n_blocks > 1 ? m->blocks[s->block_table[s->n_blocks - 2]].hash : NO_HASH;
        const int32_t *token_ids = s->tokens + s->n_tokens - m->block_tokens;
        update_block(m, last, compute_hash(m, token_ids, prefix), token_ids);
    } else {
        require(m->blocks[last].hash == NO_HASH, "a block is sealed before it is full");
    }
}

seed_sequence *seed_fork(seed_manager *m, const seed_sequence *parent)
{
    seed_sequence *child = allocate_bytes(sizeof *child);
    *child = (seed_sequence){.n_cached_tokens = parent->n_cached_tokens};
    child->n_blocks = parent->n_blocks;
    child->capacity_blocks = parent->n_blocks;
    child->block_table = allocate_bytes(parent->n_blocks * sizeof *child->block_table);
    for (uint32_t i = 0; i < parent->n_blocks; i++) {
        child->block_table[i] = parent->block_table[i];
        m->blocks[parent->block_table[i]].ref_count++;
    }
    return child;
}
