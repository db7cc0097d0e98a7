/* The results of replays that differ in the cache's policy only, side by side. */
#ifndef KVPI_POLICIES_REPORT_H
#define KVPI_POLICIES_REPORT_H

#include <jansson.h>
#include <kvpager/all.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/report/policy_list.h"

/* One replay. */
typedef struct kvpi_policies_row {
    uint32_t policy; /* KVP_POLICY_... */
    uint64_t input_tokens;
    uint64_t hit_tokens;
    kvp_stats cache; /* when all was done */
    json_t *figures; /* of its own report */
} kvpi_policies_row;

typedef struct kvpi_policies_report {
    const char *path;
    uint64_t blocks;
    uint64_t block_tokens;
    bool sequential;
    kvpi_policies_row rows[KVPI_POLICY_LIST_MOST]; /* [n] in the order that was asked for */
    size_t n;
} kvpi_policies_report;

/* Make the list of the figures: of each replay what is compared, and its whole report. Returns:
 * NULL when memory is short. Owns: the caller drops its reference */
json_t *kvpi_policies_figures(const kvpi_policies_report *report);

/* Print one table, at most 80 columns wide, except a long file name. */
void kvpi_policies_print(const kvpi_policies_report *report, FILE *file);

#endif
