/* Random configurations and random calls, decided by a seed and by the oracle's state.
 *
 * Prompts are drawn from a few streams of tokens that share prefixes, and sequences mostly go on
 * along their stream: so hits, partial hits, duplicates and adoptions happen by themselves. Some
 * calls are wrong on purpose: stale handles, values out of range, hashes that lie.
 */
#ifndef KVP_TEST_MODEL_GENERATE_H
#define KVP_TEST_MODEL_GENERATE_H

#include "oracle.h"

enum { GENERATE_STREAMS = 6, GENERATE_STALE = 32, GENERATE_KEYS = 4, GENERATE_MEMBERS = 64 };
enum { GENERATE_OPS = 80 };

typedef struct generate_stream {
    int32_t *tokens; /* [max_tokens] */
    kvp_key keys[GENERATE_KEYS];
    uint8_t key_bytes[GENERATE_KEYS][KVP_KEY_MAX_BYTES];
    uint32_t n_keys;
} generate_stream;

typedef struct generator {
    uint64_t state;
    const oracle *o;
    uint32_t alphabet;
    uint32_t max_tokens;            /* of a stream */
    uint32_t typical_blocks;        /* of a prompt */
    uint32_t weights[GENERATE_OPS]; /* of each call */
    uint32_t total_weight;
    generate_stream streams[GENERATE_STREAMS];
    uint8_t *stream_of;             /* [max_seqs] */
    bool beams;                     /* forks at the end, moved together */
    uint64_t stale[GENERATE_STALE]; /* handles that were closed */
    uint32_t n_stale;
    uint32_t last_stream, last_length; /* of a prompt */
    uint32_t follow;                   /* the next call, of what the last one led to; 0: any */
    uint64_t follow_what;              /* its sequence or step */
    bool lied;                         /* the last call's hashes are wrong between the ends */

    /* storage of the call that was generated last */
    int32_t *tokens;
    uint32_t tokens_capacity;
    kvp_hash *hashes;
    uint32_t hashes_capacity;
    kvp_key keys[GENERATE_KEYS + 2];
    kvp_range ranges[3];
    uint64_t handles[GENERATE_MEMBERS];
    uint32_t counts[GENERATE_MEMBERS];
    int32_t leaves[GENERATE_MEMBERS];
    int32_t *parents;
    uint32_t parents_capacity;
    uint8_t name[KVP_NAME_MAX_BYTES + 1];
} generator;

/* Draw the configuration `index` of a seed. uncached_tokens points to static storage. */
void generate_config(uint64_t seed, uint64_t index, kvp_config *out_config);

/* Make the generator of that configuration; it watches the oracle. */
generator *generator_create(uint64_t seed, uint64_t index, const oracle *o);
void generator_destroy(generator *g);

/* Draw the next call. Its arrays are the generator's, good until the next one. */
void generator_next(generator *g, kvp_call *out_call);

/* Tell the generator what came of it. */
void generator_saw(generator *g, const kvp_call *call, const kvp_outcome *outcome);

/* splitmix64: the generator's source of numbers, and of everything else that is random here. */
uint64_t generate_random(uint64_t *state);

#endif
