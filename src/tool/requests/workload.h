/* Synthetic workloads: requests with the prefix structure of real traffic, from a seed.
 *
 *   chat    conversations of many turns. All start with one of a few system prompts; each turn's
 *           prompt is the whole conversation so far and a new message
 *   agent   tool loops: a long system prompt with tool descriptions, then many short turns seconds
 *           apart, each appending a call and its result
 *   rag     questions about documents: a short system prompt, a document of skewed popularity, and
 *           a question of the request's own, sometimes followed by another one
 *   users   a question each of many users, all behind one system prompt
 *   agents  coding agents with sessions: a turn begins with all before it, and comes a delay after
 *           the end of the turn before; lengths and delays fitted to recorded ones
 *   mixed   the first three together, interleaved by time
 *
 * The same options give the same requests on every machine: all arithmetic is on integers.
 */
#ifndef KVPI_WORKLOAD_H
#define KVPI_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Tokens that an id stands for. */
#define KVPI_WORKLOAD_TRACE_BLOCK 512

typedef enum kvpi_workload_profile {
    KVPI_WORKLOAD_CHAT,
    KVPI_WORKLOAD_AGENT,
    KVPI_WORKLOAD_RAG,
    KVPI_WORKLOAD_USERS,
    KVPI_WORKLOAD_AGENTS,
    KVPI_WORKLOAD_MIXED
} kvpi_workload_profile;

#define KVPI_WORKLOAD_MIN_RATE_MILLI 1u
#define KVPI_WORKLOAD_MAX_RATE_MILLI 1000000000u

typedef struct kvpi_workload_options {
    kvpi_workload_profile profile;
    uint64_t seed;
    uint64_t rate_milli; /* requests per 1000 seconds, on the long run: 1..1000000000 */
} kvpi_workload_options;

/* One request, valid until the next one is asked for. */
typedef struct kvpi_workload_request {
    int64_t timestamp_ms;
    int64_t session;       /* its number; -1: the profile has none */
    int64_t delay_ms;      /* after the end of the turn before; -1: there is none */
    int32_t input_length;  /* >= 1 */
    int32_t output_length; /* >= 1 */
    size_t n_ids;          /* ceil(input_length / 512) */
    const int64_t *ids;    /* [n_ids]; requests that share an id share all ids before it */
} kvpi_workload_request;

typedef struct kvpi_workload kvpi_workload;

/* Set the defaults: mixed, seed 1, 4 requests per second.
 *
 * Gives:   options  every field written
 * Thread:  pure         Blocks: never
 */
void kvpi_workload_options_init(kvpi_workload_options *options);

/* Begin a workload.
 *
 * Gives:   out      on success only
 * Returns: 0; -1 out of memory
 * Owns:    the caller ends it with kvpi_workload_destroy
 * Thread:  any          Blocks: never
 */
int kvpi_workload_create(const kvpi_workload_options *options, kvpi_workload **out);

/* Free a workload. NULL is allowed.
 *
 * Thread:  any          Blocks: never
 */
void kvpi_workload_destroy(kvpi_workload *workload);

/* Make the next request, not earlier than the one before. There is always another.
 *
 * Gives:   request  on success only
 * Returns: 0; -1 out of memory
 * After-failure: no further request can be made
 * Thread:  exclusive    Blocks: never
 * Cost:    O(n_ids + log of the conversations going on)
 */
int kvpi_workload_next(kvpi_workload *workload, kvpi_workload_request *request);

/* Write a request as a line of Mooncake JSONL. A delay, where it has one, is in the place of the
 * time.
 *
 * Returns: 0; -1 when writing failed, errno says why
 * Thread:  exclusive    Blocks: io
 */
int kvpi_workload_write(FILE *file, const kvpi_workload_request *request);

#endif
