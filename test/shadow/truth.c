/* See truth.h. */
#include "truth.h"
#include "shadow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t tag, uint64_t value)
{
    uint64_t state = tag ^ (value + 0x632be59bd9b4e019u) * 0x9fb21c651e98df25u;
    return random_next(&state);
}

void truth_init(truth *t, uint32_t unit_tokens, uint64_t seed, verdict *v)
{
    memset(t, 0, sizeof(*t));
    t->unit_tokens = unit_tokens;
    t->seed = seed;
    t->verdict = v;
    t->n_index = 64;
    t->index = random_allocate(t->n_index, sizeof(*t->index));
}

void truth_end(truth *t)
{
    free(t->units);
    free(t->tags);
    free(t->index);
}

/* --------------------------------------------------------------------------------- known units */

static uint32_t first_place(const truth *t, const kvp_hash *hash)
{
    uint32_t at;
    memcpy(&at, hash->bytes, sizeof(at));
    return at & (t->n_index - 1);
}

static uint32_t find_unit(const truth *t, const kvp_hash *hash)
{
    for (uint32_t at = first_place(t, hash); t->index[at] != 0; at = (at + 1) & (t->n_index - 1)) {
        const uint32_t unit = t->index[at] - 1;
        if (memcmp(&t->units[unit].hash, hash, sizeof(*hash)) == 0)
            return unit;
    }
    return UINT32_MAX;
}

static void put_in_index(truth *t, uint32_t unit)
{
    uint32_t at = first_place(t, &t->units[unit].hash);
    while (t->index[at] != 0)
        at = (at + 1) & (t->n_index - 1);
    t->index[at] = unit + 1;
}

static uint32_t add_unit(truth *t, const truth_unit *unit, const uint64_t *tags)
{
    const uint32_t U = t->unit_tokens;
    if (t->n_units == t->capacity) {
        t->capacity = t->capacity * 2 + 64;
        t->units = random_grow(t->units, t->capacity, sizeof(*t->units));
        t->tags = random_grow(t->tags, (size_t)t->capacity * U, sizeof(*t->tags));
    }
    t->units[t->n_units] = *unit;
    memcpy(t->tags + (size_t)t->n_units * U, tags, U * sizeof(*tags));
    t->n_units++;
    if (2 * t->n_units > t->n_index) {
        free(t->index);
        t->n_index *= 4;
        t->index = random_allocate(t->n_index, sizeof(*t->index));
        for (uint32_t i = 0; i < t->n_units; i++)
            put_in_index(t, i);
    } else {
        put_in_index(t, t->n_units - 1);
    }
    return t->n_units - 1;
}

const truth_unit *truth_find(const truth *t, const kvp_hash *hash)
{
    const uint32_t unit = find_unit(t, hash);
    return unit == UINT32_MAX ? NULL : &t->units[unit];
}

const uint64_t *truth_tags(const truth *t, const truth_unit *unit)
{
    return t->tags + (size_t)(unit - t->units) * t->unit_tokens;
}

/* --------------------------------------------------------------------------------------- lines */

void truth_line_begin(const truth *t, truth_line *line, const char *name, uint32_t capacity)
{
    memset(line, 0, sizeof(*line));
    line->capacity = capacity;
    line->tokens = random_allocate(capacity, sizeof(*line->tokens));
    line->tags = random_allocate(capacity, sizeof(*line->tags));
    line->kv = random_allocate(capacity, sizeof(*line->kv));
    line->hashes = random_allocate(capacity / t->unit_tokens, sizeof(*line->hashes));
    line->units = random_allocate(capacity / t->unit_tokens, sizeof(*line->units));
    for (const char *c = name; *c != '\0'; c++)
        line->root_tag = mix(line->root_tag, (uint8_t)*c);
    if (kvp_hash_root(t->unit_tokens, t->seed, name, strlen(name), &line->root_hash) != KVP_OK)
        verdict_bad(t->verdict, "kvp_hash_root refused the name '%s'", name);
}

void truth_line_end(truth_line *line)
{
    free(line->tokens);
    free(line->tags);
    free(line->kv);
    free(line->hashes);
    free(line->units);
    memset(line, 0, sizeof(*line));
}

static void hash_unit(const truth *t, const truth_line *line, uint32_t u, kvp_hash *out_hash)
{
    const uint32_t U = t->unit_tokens;
    kvp_key keys[TRUTH_KEYS];
    kvp_hash_input input = {.unit_tokens = U,
                            .n_tokens = U,
                            .tokens = line->tokens + (size_t)u * U,
                            .first_position = u * U,
                            .keys = keys};
    for (uint32_t i = 0; i < line->n_keys; i++) {
        const truth_key *key = &line->keys[i];
        if (key->begin < (u + 1) * U && key->end > u * U) {
            keys[input.n_keys++] =
                (kvp_key){key->type, key->begin, key->end, key->n_bytes, key->bytes};
        }
    }
    if (kvp_hash_units(&input, u == 0 ? &line->root_hash : &line->hashes[u - 1], out_hash) !=
        KVP_OK)
        verdict_bad(t->verdict, "kvp_hash_units refused unit %" PRIu32, u);
}

/* The line has filled unit u. Two prefixes with one hash have the same KV. */
static void learn_unit(truth *t, truth_line *line, uint32_t u)
{
    const uint32_t U = t->unit_tokens;
    const uint64_t *tags = line->tags + (size_t)u * U;
    truth_unit unit = {.parent = u == 0 ? UINT32_MAX : line->units[u - 1], .position = u * U};
    hash_unit(t, line, u, &line->hashes[u]);
    unit.hash = line->hashes[u];
    line->units[u] = find_unit(t, &unit.hash);
    if (line->units[u] == UINT32_MAX) {
        line->units[u] = add_unit(t, &unit, tags);
    } else if (memcmp(truth_tags(t, &t->units[line->units[u]]), tags, U * sizeof(*tags)) != 0) {
        verdict_bad(t->verdict, "two prefixes of %" PRIu32 " tokens have one hash and differ in KV",
                    (u + 1) * U);
    }
}

uint64_t truth_next(const truth_line *line, uint64_t before, uint32_t position, int32_t token,
                    uint64_t saw)
{
    uint64_t tag = mix(before, (uint32_t)token);
    for (uint32_t i = 0; i < line->n_keys; i++) {
        const truth_key *key = &line->keys[i];
        if (key->begin <= position && position < key->end) {
            tag = mix(mix(tag, ((uint64_t)key->type << 32) + position - key->begin), key->n_bytes);
            for (uint32_t k = 0; k < key->n_bytes; k++)
                tag = mix(tag, key->bytes[k]);
        }
    }
    return (saw == 0 ? tag : mix(tag, saw)) | SHADOW_RIGHT;
}

void truth_line_add(truth *t, truth_line *line, int32_t token)
{
    const uint32_t p = line->n;
    if (p == line->capacity) {
        verdict_bad(t->verdict, "a sequence outgrew its line of %" PRIu32 " tokens", p);
        return;
    }
    line->tokens[p] = token;
    line->tags[p] = truth_next(line, p == 0 ? line->root_tag : line->tags[p - 1], p, token, 0);
    line->kv[p] = line->tags[p];
    line->n++;
    if (line->n % t->unit_tokens == 0)
        learn_unit(t, line, p / t->unit_tokens);
}

void truth_line_compute(truth_line *line, uint32_t p, uint64_t saw)
{
    line->kv[p] =
        truth_next(line, p == 0 ? line->root_tag : line->kv[p - 1], p, line->tokens[p], saw);
}

uint64_t truth_in_group(uint64_t tag, uint32_t group)
{
    return group == 0 ? tag : mix(tag, group) | SHADOW_RIGHT;
}

/* ------------------------------------------------------------------------------------- windows */

static bool is_chunked(kvp_window window)
{
    return window.sink_tokens == KVP_CHUNKED;
}

static bool sees_all(kvp_window window, uint32_t query)
{
    if (is_chunked(window))
        return query < window.recent_tokens;
    return window.recent_tokens == 0 || query < (uint64_t)window.sink_tokens + window.recent_tokens;
}

bool truth_sees(kvp_window window, uint32_t query, uint32_t key)
{
    if (is_chunked(window))
        return key <= query && key / window.recent_tokens == query / window.recent_tokens;
    return key <= query && (sees_all(window, query) || key < window.sink_tokens ||
                            query - key < window.recent_tokens);
}

uint64_t truth_saw(const kvp_window *own, const kvp_group *theirs, uint32_t n_groups,
                   uint32_t query)
{
    uint64_t saw = 0;
    for (uint32_t g = 0; g < n_groups; g++) {
        const bool all = sees_all(own[g], query);
        const kvp_window window = {theirs[g].sink_tokens, theirs[g].recent_tokens};
        if (all != sees_all(window, query) ||
            (!all && (own[g].sink_tokens != window.sink_tokens ||
                      own[g].recent_tokens != window.recent_tokens))) {
            saw = mix(mix(saw, g + 1),
                      all ? 0 : ((uint64_t)own[g].sink_tokens << 32) + own[g].recent_tokens) |
                  1;
        }
    }
    return saw;
}

void truth_line_cut(const truth *t, truth_line *line, uint32_t n)
{
    const uint32_t U = t->unit_tokens;
    uint32_t kept = 0;
    if (n >= line->n)
        return;
    line->n = n;
    for (uint32_t i = 0; i < line->n_keys; i++) {
        if (line->keys[i].begin < n) {
            const uint32_t end = (n + U - 1) / U * U;
            line->keys[kept] = line->keys[i];
            if (line->keys[kept].end > end)
                line->keys[kept].end = end;
            kept++;
        }
    }
    line->n_keys = kept;
}

void truth_line_copy(const truth *t, truth_line *line, const truth_line *from, uint32_t n)
{
    memcpy(line->tokens, from->tokens, from->n * sizeof(*line->tokens));
    memcpy(line->tags, from->tags, from->n * sizeof(*line->tags));
    memcpy(line->kv, from->kv, from->n * sizeof(*line->kv));
    memcpy(line->hashes, from->hashes, from->n / t->unit_tokens * sizeof(*line->hashes));
    memcpy(line->units, from->units, from->n / t->unit_tokens * sizeof(*line->units));
    memcpy(line->keys, from->keys, sizeof(line->keys));
    line->root_tag = from->root_tag;
    line->root_hash = from->root_hash;
    line->n_keys = from->n_keys;
    line->n = from->n;
    truth_line_cut(t, line, n);
}

uint32_t truth_key_length(const truth *t, const truth_key *key)
{
    uint32_t sum = key->type + 5 * key->n_bytes;
    for (uint32_t i = 0; i < key->n_bytes; i++)
        sum = 3 * sum + key->bytes[i];
    return 1 + sum % (2 * t->unit_tokens);
}

bool truth_key_fits(const truth *t, const truth_line *line, const truth_key *key, uint32_t most)
{
    const uint32_t U = t->unit_tokens;
    if (line->n_keys == TRUTH_KEYS || most == 0 ||
        (line->n_keys > 0 && key->begin <= line->keys[line->n_keys - 1].begin))
        return false;
    for (uint32_t u = key->begin / U; u * U < key->end; u++) {
        uint32_t touching = 1;
        for (uint32_t i = 0; i < line->n_keys; i++)
            touching += line->keys[i].begin < (u + 1) * U && line->keys[i].end > u * U;
        if (touching > most)
            return false;
    }
    return true;
}
