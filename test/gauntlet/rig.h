/* rig: a cache, the shadow memory behind it, and an engine that does one thing at a time.
 *
 * test/shadow has the memory and what should be in it; its own engines draw what they do. A scene
 * knows what it wants to happen, so it calls the cache itself, or one of the shorthands below, and
 * after each call that changes something rig_called: the plan is taken and run (in order in one
 * memory, phase by phase and backwards within a phase in the other), what was dropped is poisoned,
 * the cache is audited. A forward pass reads every key that a query sees, in the row of each layer
 * group, and then writes. Windows, layer groups, trees and both tiers are understood. Late work and
 * overlapped steps are watch.h's: scenes that need them use it directly.
 *
 * Nothing stops at the first failure: the verdict keeps it, with the line.
 */
#ifndef KVP_TEST_GAUNTLET_RIG_H
#define KVP_TEST_GAUNTLET_RIG_H

#include "../shadow/watch.h"

#include <kvpager/trees.h>
#include <kvpager/windows.h>

/* Macros, so that a failure names the line. */
#define EXPECT(r, condition) rig_expect(r, condition, #condition, __FILE__, __LINE__)
#define EXPECT_EQ(r, got, want)                                                                    \
    rig_expect_eq(r, (rig_pair){(int64_t)(got), (int64_t)(want)}, #got, __FILE__, __LINE__)
#define EXPECT_STATUS(r, want, call) rig_expect_status(r, call, want, __FILE__, __LINE__)
#define EXPECT_OK(r, call)           EXPECT_STATUS(r, KVP_OK, call)

/* A sequence, and what its KV should be. */
typedef struct rig_seq {
    bool is_open;
    bool is_swapped;
    kvp_seq handle;
    uint64_t serial;
    truth_line line;
} rig_seq;

enum { RIG_SEQS = 64, RIG_TOKENS = 8192 };

/* Defects on purpose: what scenes must be able to see (main.c, --self-test). */
typedef enum rig_plant {
    RIG_NOTHING = 0,
    RIG_SHORT_COPY,   /* copies move a slot too few */
    RIG_SKIPPED_COPY, /* copies are not run */
    RIG_SKIPPED_MOVE, /* accepted tokens stay where they are */
    RIG_WRONG_SLOT,   /* a token's KV goes to the slot of the one before */
    RIG_EARLY_REUSE,  /* a block that becomes cached is written by others */
    RIG_EARLY_DONE,   /* a step is reported done that has not run */
    RIG_PLANTS
} rig_plant;

typedef struct rig {
    verdict verdict;
    rig_plant planted;
    kvp_config config; /* as resolved */
    kvp_cache *cache;  /* NULL: not begun */
    kvp_ns ns;         /* the namespace "model" */
    shadow *memory;
    truth truth;
    uint64_t *generations[SHADOW_TIERS];
    uint8_t *states[SHADOW_TIERS];
    rig_seq seqs[RIG_SEQS];
    kvp_open_info info; /* of the last open */
    uint64_t n_serials, n_calls;
    uint64_t n_slots; /* compared, in all */
} rig;

typedef struct rig_pair {
    int64_t got, want;
} rig_pair;

void rig_expect(rig *r, bool is_so, const char *what, const char *file, int line);
void rig_expect_eq(rig *r, rig_pair numbers, const char *what, const char *file, int line);
void rig_expect_status(rig *r, kvp_status got, kvp_status want, const char *file, int line);

/* S = U = 4 tokens, `usable` blocks. */
kvp_config rig_config(uint32_t usable);

void rig_begin(rig *r, const kvp_config *config);
/* Audit everything, close what is open: every block must come back. Does nothing before begin. */
void rig_end(rig *r);

/* The tokens first, first + 1, ... */
const int32_t *rig_tokens(int32_t first);

/* A call that may have changed the cache was made. */
void rig_called(rig *r);
/* What blocks are said to hold is there, and every computed token that its window keeps. */
void rig_audit(rig *r);

/* ----------------------------------------------------------------------------------- shorthands */

kvp_prompt rig_prompt(const int32_t *tokens, uint32_t n_tokens);
/* Open; the info is in r->info. A failure is a bad verdict, and gives a sequence that is closed. */
rig_seq *rig_open(rig *r, const int32_t *tokens, uint32_t n_tokens);
rig_seq *rig_open_with(rig *r, kvp_ns ns, const char *space, const kvp_prompt *prompt);
rig_seq *rig_open_done(rig *r, const int32_t *tokens, uint32_t n_tokens);
void rig_leave_cached(rig *r, const int32_t *tokens, uint32_t n_tokens);

/* A forward pass over tokens [from, to): read, write, read again. */
void rig_forward(rig *r, rig_seq *s, uint32_t from, uint32_t to);
void rig_commit(rig *r, rig_seq *s, uint32_t n_tokens);
void rig_compute(rig *r, rig_seq *s); /* all that is not computed, and commit it */
void rig_extend(rig *r, rig_seq *s, const int32_t *tokens, uint32_t n_tokens);
void rig_decode(rig *r, rig_seq *s, int32_t first, uint32_t n_tokens); /* one by one */
rig_seq *rig_fork(rig *r, const rig_seq *parent, uint32_t at);
void rig_truncate(rig *r, rig_seq *s, uint32_t n_tokens);
kvp_released rig_close(rig *r, rig_seq *s);
void rig_swap(rig *r, rig_seq *const *seqs, uint32_t n_seqs, bool out);
kvp_open_info rig_match(rig *r, const int32_t *tokens, uint32_t n_tokens);

/* Add nodes to a tree and compute them: each reads the tokens and its own ancestors. */
void rig_grow(rig *r, rig_seq *s, const int32_t *tokens, const int32_t *parents, uint32_t n_nodes);
/* Accept paths, move the KV, read everything. Gives the moves. */
uint32_t rig_accept(rig *r, rig_seq *const *seqs, const int32_t *leaves, uint32_t n_seqs);

kvp_stats rig_stats(rig *r);
kvp_seq_info rig_info(rig *r, const rig_seq *s);
kvp_block_info rig_block(rig *r, uint32_t tier, int32_t block);
int32_t rig_row(rig *r, const rig_seq *s, uint32_t group, uint32_t entry); /* -1: none */
kvp_shortage rig_shortage(rig *r);

#endif
