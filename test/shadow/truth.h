/* truth: what KV is of.
 *
 * The KV of a token depends on the tokens up to it, on the extra keys that cover them, and on the
 * namespace (the model, the adapter, the tenant); on nothing else. So the right tag of position p
 * is a hash, chained like KV is:
 *
 *   tag(-1) = H(namespace's name)
 *   tag(p)  = H(tag(p-1), token p, every key that covers p: its type, p - begin, its bytes)
 *
 * That is the tag of KV that everybody shares: each query saw what the configuration's windows
 * show. A sequence with a window of its own computes other KV from the first token on that saw
 * something else: a line has a second chain, `kv`, into which goes what each token saw when it was
 * computed. Where nothing was hidden the two are equal. What lies in a slot is this tag with the
 * layer group mixed in (truth_in_group).
 *
 * Where the cache finds a prefix to be equal, the tags must be, too: a line is a sequence's tokens
 * with their tags, and `truth` remembers the tags of every unit by the content hash that the public
 * hash gives it. So what a block is said to hold can be looked up by its hash.
 *
 * A key's length is decided by its type and bytes, as an image's is by its digest: a unit's
 * identity has a key's begin and bytes, not its end.
 */
#ifndef KVP_TEST_SHADOW_TRUTH_H
#define KVP_TEST_SHADOW_TRUTH_H

#include <kvpager/all.h>

#include "random.h"

enum { TRUTH_KEYS = 6, TRUTH_KEY_BYTES = 3 };

typedef struct truth_key {
    uint32_t type, begin, end, n_bytes;
    uint8_t bytes[TRUTH_KEY_BYTES];
} truth_key;

/* One unit that somebody had. */
typedef struct truth_unit {
    kvp_hash hash;
    uint32_t parent;   /* the unit before; UINT32_MAX: none */
    uint32_t position; /* of its first token */
} truth_unit;

typedef struct truth {
    uint32_t unit_tokens; /* U */
    uint64_t seed;
    truth_unit *units; /* [n_units] */
    uint64_t *tags;    /* [n_units x U] */
    uint32_t n_units, capacity;
    uint32_t *index; /* [n_index] open addressing; unit + 1, 0: empty */
    uint32_t n_index;
    verdict *verdict;
} truth;

/* A sequence's tokens. */
typedef struct truth_line {
    int32_t *tokens;  /* [n] */
    uint64_t *tags;   /* [n] what everybody's KV of these tokens is */
    uint64_t *kv;     /* [n] what this sequence's is */
    kvp_hash *hashes; /* [n / U] */
    uint32_t *units;  /* [n / U] in truth.units */
    uint32_t n, capacity;
    uint64_t root_tag;
    kvp_hash root_hash;
    uint32_t n_keys;
    truth_key keys[TRUTH_KEYS];
} truth_line;

void truth_init(truth *t, uint32_t unit_tokens, uint64_t seed, verdict *v);
void truth_end(truth *t);

/* The unit with this content hash; NULL when nobody ever had it. */
const truth_unit *truth_find(const truth *t, const kvp_hash *hash);
const uint64_t *truth_tags(const truth *t, const truth_unit *unit); /* [U] */

/* Begin a line in the namespace of this name, for up to `capacity` tokens. */
void truth_line_begin(const truth *t, truth_line *line, const char *name, uint32_t capacity);
void truth_line_end(truth_line *line);

/* Add a token, after the keys that cover it. */
void truth_line_add(truth *t, truth_line *line, int32_t token);

/* The tag after `before` of a token at this position; saw is 0 when its query saw what everybody's
 * sees. */
uint64_t truth_next(const truth_line *line, uint64_t before, uint32_t position, int32_t token,
                    uint64_t saw);

/* The line's token at p is computed. */
void truth_line_compute(truth_line *line, uint32_t p, uint64_t saw);

/* What a slot of this group holds for a tag. */
uint64_t truth_in_group(uint64_t tag, uint32_t group);

/* Whether the query at this position sees the key. */
bool truth_sees(kvp_window window, uint32_t query, uint32_t key);

/* What a query sees through its own windows [n_groups], if that is not what it sees through theirs;
 * 0 when it is. */
uint64_t truth_saw(const kvp_window *own, const kvp_group *theirs, uint32_t n_groups,
                   uint32_t query);

/* Cut to n tokens. A key that begins before stays to the end of the unit that is cut. */
void truth_line_cut(const truth *t, truth_line *line, uint32_t n);

/* Make `line` what `from` is up to n tokens. */
void truth_line_copy(const truth *t, truth_line *line, const truth_line *from, uint32_t n);

/* The tokens that a key of this type and these bytes covers. */
uint32_t truth_key_length(const truth *t, const truth_key *key);

/* Whether at most `most` keys would touch each unit with this one; keys are added in order. */
bool truth_key_fits(const truth *t, const truth_line *line, const truth_key *key, uint32_t most);

#endif
