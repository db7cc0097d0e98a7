/* The results of `kvpager mrc`, and how they are printed. docs/COMMAND.md defines every figure. */
#ifndef KVPI_MRC_REPORT_H
#define KVPI_MRC_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "tool/models/devices.h"
#include "tool/models/models.h"
#include "tool/mrc/lru.h"
#include "tool/mrc/policies/policies.h"
#include "tool/mrc/refs.h"
#include "tool/mrc/retention.h"
#include "tool/mrc/tiers.h"
#include "tool/report/figures.h"
#include "tool/requests/requests.h"

#define KVPI_MRC_MAX_POINTS 64
#define KVPI_MRC_NONE       (-1.0)

/* Policies that are shown beside LRU. */
typedef struct kvpi_mrc_shown {
    bool of[KVPI_MRC_POLICIES];
} kvpi_mrc_shown;

/* A policy's name in options and figures, and for people. */
typedef struct kvpi_mrc_policy_name {
    const char *name, *title;
} kvpi_mrc_policy_name;

extern const kvpi_mrc_policy_name kvpi_mrc_policy_names[KVPI_MRC_POLICIES];

/* One size. */
typedef struct kvpi_mrc_point {
    uint64_t blocks;
    kvpi_mrc_hits lru;
    double tokens[KVPI_MRC_POLICIES]; /* hit; KVPI_MRC_NONE: not simulated */
    bool is_device;                   /* what the accelerator has */
} kvpi_mrc_point;

/* Shares of what an unlimited cache hits, and the sizes that give them. */
#define KVPI_MRC_SHARES 6
extern const int kvpi_mrc_shares[KVPI_MRC_SHARES]; /* percent, ascending, the last is 100 */

typedef struct kvpi_mrc_report {
    const char *format;
    const kvpi_requests_about *about;
    const kvpi_requests_again *agains; /* [n_agains] of bounded traces */
    size_t n_agains;
    bool is_cut; /* --limit: these are not all requests of the trace */
    const kvpi_mrc_options *options;
    const kvpi_mrc_refs *refs;
    const kvpi_mrc_curve *curve;
    kvpi_mrc_shown shown;
    uint64_t mended;
    int64_t span_us;
    uint64_t token_bytes;      /* of KV; 0: not known */
    const kvpi_model *model;   /* NULL: none was named */
    const kvpi_device *device; /* NULL: none was named */
    uint32_t tensor_parallel;
    uint64_t device_blocks; /* what the model leaves of the accelerator; 0 without one */
    bool is_device_shown;   /* else it is smaller than what the largest request needs */
    kvpi_mrc_point points[KVPI_MRC_MAX_POINTS + 1]; /* ascending; those asked for, and its */
    size_t n_points;
    uint64_t small_blocks[KVPI_MRC_MAX_POINTS]; /* asked for, too few for the largest request */
    size_t n_small;
    uint64_t share_blocks[KVPI_MRC_SHARES];
    kvpi_mrc_retention retention;
    uint64_t price_milli;      /* of an accelerator's hour; 0: not known */
    kvpi_mrc_tiers_row *tiers; /* [n_tiers] NULL: nothing was asked of other tiers */
    size_t n_tiers;
} kvpi_mrc_report;

/* Divide by the input tokens. */
static inline double kvpi_mrc_ratio(const kvpi_mrc_report *report, double tokens)
{
    return report->refs->input_tokens == 0 ? 0 : tokens / (double)report->refs->input_tokens;
}

/* Bytes of KV in so many blocks; 0 when a token's are not known. */
static inline double kvpi_mrc_bytes(const kvpi_mrc_report *report, uint64_t blocks)
{
    return (double)blocks * (double)report->refs->block_tokens * (double)report->token_bytes;
}

/* Make the list of the report's figures. Returns: NULL when memory is short. Owns: the caller drops
 * its reference */
json_t *kvpi_mrc_report_figures(const kvpi_mrc_report *report);

/* Print the report for people, at most 80 columns wide, except a long file name.
 *
 * Takes:   figures  of this report
 */
void kvpi_mrc_report_print(const kvpi_mrc_report *report, const json_t *figures, FILE *file);

/* Print every size at which the hits change, as CSV: blocks, tokens hit. Whether it could be
 * written shows in ferror. */
void kvpi_mrc_report_print_curve(const kvpi_mrc_report *report, FILE *file);

#endif
