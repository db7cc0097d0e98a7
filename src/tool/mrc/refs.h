/* A trace as block references: what each request looks up and leaves in the cache, as numbers. */
#ifndef KVPI_MRC_REFS_H
#define KVPI_MRC_REFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tool/log/log_args.h"

/* Sampled blocks are split into so many groups, each an estimate of its own. */
#define KVPI_MRC_GROUPS 16

typedef struct kvpi_mrc_options {
    const char *command; /* for messages; NULL: without */
    kvpi_trace_args trace;
    uint64_t block_tokens;
    uint64_t sample_millionths; /* 1000000: every block */
} kvpi_mrc_options;

/* One request, as a sequential replay serves it. With sampling: of its blocks, those in the sample;
 * everything below holds for them as for all. */
typedef struct kvpi_mrc_request {
    uint64_t first;    /* of its references */
    uint32_t n_prompt; /* full blocks of the prompt: looked up, in order */
    uint32_t n_full;   /* and of the output: left in the cache; >= n_prompt */
    uint32_t n_opened; /* blocks that the open provides: n_prompt, or one more */
    uint32_t n_blocks; /* at its end: n_full, or one more that is partly filled */
    uint32_t
        last_tokens; /* that a hit of the last of n_prompt spares; the others spare a block's */
    uint32_t input_tokens;
    uint32_t output_tokens; /* that are appended */
} kvpi_mrc_request;

/* Contents are numbered from 0 by their first appearance. A content is a block's tokens and all
 * that stands before them, so a reference comes never without those before it in its request. */
typedef struct kvpi_mrc_refs {
    kvpi_mrc_request *requests; /* [n_requests] in replay order */
    size_t n_requests;
    uint32_t *contents; /* [n_refs] of request r: from requests[r].first, n_full of them */
    uint64_t n_refs;
    uint8_t *groups; /* [n_contents] 0..KVPI_MRC_GROUPS-1 */
    uint32_t n_contents;
    uint64_t block_tokens;
    double rate; /* of the sample; 1: all */
    /* of all blocks, sampled or not */
    uint64_t input_tokens;
    uint64_t output_tokens;
    uint64_t looked_up_blocks;
    uint64_t looked_up_tokens; /* that these would spare, were all of them hit */
    uint64_t min_blocks;       /* that the largest request needs */
} kvpi_mrc_refs;

/* Make the references of a trace.
 *
 * Gives:   out      on success only
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Owns:    the caller frees it
 * Cost:    O(tokens); memory 4 bytes a reference and 16 to 64 a content
 */
int kvpi_mrc_refs_make(const kvpi_requests *requests, const kvpi_mrc_options *options,
                       kvpi_mrc_refs *out);
void kvpi_mrc_refs_free(kvpi_mrc_refs *refs);

#endif
