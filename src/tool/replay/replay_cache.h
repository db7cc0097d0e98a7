/* Drives the cache with a request trace: the part of `kvpager replay` that does the work. */
#ifndef KVPI_REPLAY_H
#define KVPI_REPLAY_H

#include <kvpager/all.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/report/report.h"
#include "tool/log/log_args.h"
#include "tool/mrc/lru.h"
#include "tool/watch/watch.h"
#include "tool/store/attach.h"

typedef struct kvpi_replay_options {
    uint64_t block_tokens;            /* 1..KVP_BLOCK_TOKENS_MAX */
    uint64_t unit_tokens;             /* divides block_tokens */
    uint64_t blocks;                  /* usable ones, 1..KVPI_REPLAY_MAX_BLOCKS */
    uint64_t host_blocks;             /* usable ones of the host tier; 0: there is none */
    uint64_t state_slots;             /* usable ones, of recurrent state; 0: there is none */
    uint64_t host_state_slots;        /* the same on the host; 0: there is no host tier */
    uint32_t keep_evicted;            /* on the host: KVP_EVICTED_... */
    uint32_t policy;                  /* KVP_POLICY_... */
    kvp_group groups[KVP_GROUPS_MAX]; /* [n_groups] of the model's layers */
    uint32_t n_groups;
    uint32_t retain_tokens; /* as in kvp_config */
    kvpi_trace_args trace;  /* its limit: requests to replay, those behind `skip` */
    uint64_t skip;          /* requests to leave out, the first in replay order */
    bool prefix_cache;
    uint32_t reclaim; /* free blocks that are made ahead of need, at most */
    kvpi_attach_options store;
    const char *record;       /* file for the operation log, NULL: none */
    const char *snapshot_in;  /* file to restore the cache from, NULL: it is empty */
    const char *snapshot_out; /* file to save it in, NULL: none */
    kvpi_watch *watch;        /* what the page wants to know, NULL: nothing */
    kvpi_mrc_sizes *sizes;    /* of caches, for the watch; NULL: they are not known */
} kvpi_replay_options;

#define KVPI_REPLAY_MAX_BLOCKS UINT64_C(2147483646)
#define KVPI_REPLAY_MAX_SLOTS  UINT64_C(1073741823)

/* In a cache with windows a prompt is computed in pieces of so many tokens: what a piece leaves
 * behind the windows is dropped before the next one takes its blocks. */
#define KVPI_REPLAY_PIECE_TOKENS 8192u

/* Replay requests one after the other: open, commit, decode, close, then the next. With recurrent
 * state, prompts are computed in the chunks that the cache asks for, and their states are kept; so
 * is the state after the last full unit of the output.
 *
 * A request whose input and appended output need more blocks than there are is counted as rejected;
 * the cache does not hear of it. What it needs is told from the windows alone: as much as with no
 * hits, or with hits that end anywhere.
 *
 * Gives:   report   the counts, times and the timeline; the other fields are left as they are
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Cost:    O(tokens)
 */
int kvpi_replay_run(const kvpi_requests *requests, const kvpi_replay_options *options,
                    kvpi_report *report);

#endif
