/* The command line of `kvpager mrc`. */
#ifndef KVPI_MRC_ARGS_H
#define KVPI_MRC_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/args.h"
#include "tool/models/models_args.h"
#include "tool/models/step_model.h"
#include "tool/mrc/refs.h"
#include "tool/mrc/mrc_report.h"
#include "tool/mrc/tiers.h"

/* A size that was asked for: blocks, or bytes of memory. */
typedef struct kvpi_mrc_size {
    uint64_t number;
    bool is_bytes;
} kvpi_mrc_size;

typedef struct kvpi_mrc_sizes {
    kvpi_mrc_size of[KVPI_MRC_MAX_POINTS];
    size_t n;
} kvpi_mrc_sizes;

typedef struct kvpi_mrc_args {
    kvpi_mrc_options options;
    kvpi_model_args model;
    uint64_t kv_bytes_per_token;
    uint64_t price_milli; /* of an accelerator's hour; 0: none */
    kvpi_step_shares shares;
    kvpi_mrc_sizes sizes;   /* none: the command chooses */
    kvpi_mrc_sizes hosts;   /* none: one tier only */
    kvpi_mrc_sizes stores;  /* none: two tiers only */
    kvpi_mrc_sizes records; /* none: the command chooses */
    kvpi_mrc_writes writes;
    const char *report;
    const char *curve;
    kvpi_mrc_shown shown;
    bool json;
} kvpi_mrc_args;

/* Read the command line.
 *
 * Gives:   args     for messages of later stages
 * Returns: as kvpi_args_parse
 */
int kvpi_mrc_args_parse(int argc, char **argv, kvpi_args *args, kvpi_mrc_args *out);

#endif
