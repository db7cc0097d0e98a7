/* Why tokens of prompts were computed. Each prompt is cut in order, each cut behind the one before,
 * so that the parts add up to the prompt:
 *
 *   | hit | resident | evicted | in flight | grid or new | last |
 *
 * The watch (watch.h) finds the cuts when a request is admitted for the first time; here they are
 * summed, the worst requests are kept, and a line each is written where a file is named. */
#ifndef KVPI_REASONS_H
#define KVPI_REASONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/models/step_model.h"

typedef enum kvpi_reason {
    KVPI_REASON_HIT,
    KVPI_REASON_RESIDENT,  /* in some tier, and not brought back */
    KVPI_REASON_EVICTED,   /* from a unit on that was stored once, and is nowhere now */
    KVPI_REASON_IN_FLIGHT, /* from a unit on that another request was computing */
    KVPI_REASON_GRID,      /* behind the last full unit, where all full units are known */
    KVPI_REASON_NEW,       /* from a unit on that no request had before */
    KVPI_REASON_LAST,      /* the last token, which is always computed */
    KVPI_REASONS
} kvpi_reason;

extern const char *const kvpi_reason_names[KVPI_REASONS]; /* as in JSON */

typedef enum kvpi_tier {
    KVPI_TIER_NONE, /* not known */
    KVPI_TIER_DEVICE,
    KVPI_TIER_HOST,
    KVPI_TIER_STORE,
    KVPI_TIERS
} kvpi_tier;

extern const char *const kvpi_tier_names[KVPI_TIERS]; /* as in JSON */

typedef struct kvpi_reasons_line {
    const char *file; /* of several files; NULL: there is one */
    uint64_t line;    /* of the trace */
    uint32_t of_line; /* the request's place in it, from 1; 0: it has no other */
    uint32_t n_tokens;
    uint32_t tokens[KVPI_REASONS];
    uint32_t hit_tokens[KVPI_TIERS]; /* of the hit, by where it was */
    const char *kept_back;  /* why what is resident was not brought back; NULL: nothing was */
    kvpi_tier evicted_from; /* the tier that the first evicted unit left last */
    bool has_age;           /* and when it did is known: */
    uint64_t evicted_ago;   /* in the replay's unit of time */
    uint64_t enough_blocks; /* of a cache that would have all that is evicted; 0: not known */
    const char *known_file; /* as file, of known_line */
    uint64_t known_line;    /* the first request with all that was known; 0: none, or generated */
    uint32_t known_of_line; /* as of_line, of known_line */
    double again_ns;        /* of prefill: what is neither hit, new, grid nor last; by the model */
} kvpi_reasons_line;

#define KVPI_REASONS_WORST     10
#define KVPI_REASONS_KEPT_BACK 12

typedef struct kvpi_reasons {
    uint64_t tokens[KVPI_REASONS];
    uint64_t requests[KVPI_REASONS];             /* by what came first behind the hit */
    double prefill_ns[KVPI_REASONS];             /* arithmetic of these tokens; 0 without a model */
    kvpi_reasons_line worst[KVPI_REASONS_WORST]; /* [n_worst] most tokens computed again first */
    size_t n_worst;
    uint64_t hit_tokens[KVPI_TIERS];
    uint64_t evicted_tokens[KVPI_TIERS];           /* by the tier that the first unit left last */
    const char *kept_back[KVPI_REASONS_KEPT_BACK]; /* [n_kept_back] why not brought back, */
    uint64_t kept_back_tokens[KVPI_REASONS_KEPT_BACK]; /* and how much of each line */
    size_t n_kept_back;
    uint64_t *kept_by; /* [n_kept_by] evicted tokens that a cache of so many blocks would have */
    size_t n_kept_by;  /* had, and a smaller one not */
    const kvpi_step_model *model; /* NULL: no time is told */
    bool in_ms;                   /* times are milliseconds, else numbers of requests */
    const char *path;             /* of the lines; NULL: none are written */
    FILE *file;
    int error; /* errno of the first write that failed; 0: none has */
    bool is_short;
} kvpi_reasons;

/* Begin, and open the file of lines if there is one.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_reasons_begin(kvpi_reasons *why, const char *path);

/* Count a prompt: its parts are there; what they cost is added to the line. */
void kvpi_reasons_add(kvpi_reasons *why, kvpi_reasons_line *line);

/* The unit of times, as in JSON. */
const char *kvpi_reasons_unit(const kvpi_reasons *why);

/* Tokens that were known and computed all the same. */
uint32_t kvpi_reasons_again(const kvpi_reasons_line *line);

/* A unit's tokens were evicted, and a cache of so many blocks would have had them. */
void kvpi_reasons_kept_by(kvpi_reasons *why, uint32_t blocks, uint32_t n_tokens);

/* Tell the smallest cache that would have kept so large a part of the evicted tokens; 0: not
 * known. */
uint64_t kvpi_reasons_enough(const kvpi_reasons *why, double part);

/* End: the file is written.
 *
 * Returns: as kvpi_reasons_begin
 */
int kvpi_reasons_end(kvpi_reasons *why);

#endif
