/* Requests whose prompts grow token by token, as conversations and agents make them. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include <stdint.h>

typedef struct request {
    int32_t *tokens;   /* [n_prompt + n_answer] */
    uint32_t n_prompt; /* >= 1 */
    uint32_t n_answer; /* >= 1 */
} request;

typedef struct traffic {
    const char *name;
    request *requests; /* [n_requests] in the order of their arrival */
    uint32_t n_requests;
    uint32_t max_tokens; /* of a request */
} traffic;

typedef enum traffic_kind {
    TRAFFIC_CHAT,     /* a turn's prompt is all that was said, and a message */
    TRAFFIC_AGENT,    /* the same with long prefixes, many short turns, results of tools */
    TRAFFIC_STRIPPED, /* chat in which an answer begins with reasoning; later turns lack it */
    N_TRAFFIC
} traffic_kind;

/* Make requests. Same arguments, same tokens, on every machine. Owns: traffic_free */
traffic traffic_make(traffic_kind which, uint32_t n_requests, uint64_t seed);

void traffic_free(traffic *of);

#endif
