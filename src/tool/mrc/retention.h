/* What content is worth that is kept for a while after its last use, whatever room it takes. */
#ifndef KVPI_MRC_RETENTION_H
#define KVPI_MRC_RETENTION_H

#include "tool/mrc/refs.h"
#include "tool/requests/requests.h"

#define KVPI_MRC_RETENTIONS 10

typedef struct kvpi_mrc_kept {
    int64_t us;         /* since the last use; INT64_MAX: for good */
    double hit_tokens;  /* with sampling, an estimate */
    double mean_blocks; /* over the time of the trace */
} kvpi_mrc_kept;

typedef struct kvpi_mrc_retention {
    kvpi_mrc_kept kept[KVPI_MRC_RETENTIONS]; /* ascending; the last one is for good */
    size_t n;
} kvpi_mrc_retention;

/* Find them, by the arrivals of the trace: times that are shorter than it, and for good.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Cost:    O(references), 8 bytes a content
 */
int kvpi_mrc_retention_make(const kvpi_mrc_refs *refs, const kvpi_requests *requests,
                            kvpi_mrc_retention *out);

#endif
