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
    KVPI_REASON_RESIDENT,  /* on the device or the host, and not brought back */
    KVPI_REASON_EVICTED,   /* from a unit on that was stored once, and is nowhere now */
    KVPI_REASON_IN_FLIGHT, /* from a unit on that another request was computing */
    KVPI_REASON_GRID,      /* behind the last full unit, where all full units are known */
    KVPI_REASON_NEW,       /* from a unit on that no request had before */
    KVPI_REASON_LAST,      /* the last token, which is always computed */
    KVPI_REASONS
} kvpi_reason;

extern const char *const kvpi_reason_names[KVPI_REASONS]; /* as in JSON */

typedef struct kvpi_reasons_line {
    uint64_t line; /* of the trace */
    uint32_t n_tokens;
    uint32_t tokens[KVPI_REASONS];
    const char *kept_back; /* why what is resident was not brought back; NULL: nothing was */
    bool has_age;          /* the first evicted unit's are known: */
    uint32_t evicted_from; /* the tier that it left last */
    uint64_t evicted_ago;  /* in the replay's unit of time */
    uint64_t known_line;   /* the first request with all that was known; 0: none, or generated */
    double again_ns;       /* of prefill: what is neither hit, new, grid nor last; by the model */
} kvpi_reasons_line;

#define KVPI_REASONS_WORST 10

typedef struct kvpi_reasons {
    uint64_t tokens[KVPI_REASONS];
    uint64_t requests[KVPI_REASONS];             /* by what came first behind the hit */
    double prefill_ns[KVPI_REASONS];             /* arithmetic of these tokens; 0 without a model */
    kvpi_reasons_line worst[KVPI_REASONS_WORST]; /* [n_worst] most tokens computed again first */
    size_t n_worst;
    const kvpi_step_model *model; /* NULL: no time is told */
    const char *unit;             /* of times: "ms", or "requests" */
    const char *path;             /* of the lines; NULL: none are written */
    FILE *file;
    int error; /* errno of the first write that failed; 0: none has */
} kvpi_reasons;

/* Begin, and open the file of lines if there is one.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_reasons_begin(kvpi_reasons *why, const char *path);

/* Count a prompt: its parts are there; what they cost is added to the line. */
void kvpi_reasons_add(kvpi_reasons *why, kvpi_reasons_line *line);

/* Tokens that were known and computed all the same. */
uint32_t kvpi_reasons_again(const kvpi_reasons_line *line);

/* End: the file is written.
 *
 * Returns: as kvpi_reasons_begin
 */
int kvpi_reasons_end(kvpi_reasons *why);

#endif
