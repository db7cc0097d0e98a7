/* The command line of `kvpager replay`. */
#ifndef KVPI_REPLAY_ARGS_H
#define KVPI_REPLAY_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/args.h"
#include "tool/models/models_args.h"
#include "tool/report/policy_list.h"
#include "tool/replay/simulate.h"
#include "tool/models/step_model.h"

/* What was asked for, defaults filled in. Numbers of bytes are 0 when they were not given. */
typedef struct kvpi_replay_args {
    kvpi_simulate_options load; /* load.replay: of both kinds of replay; blocks 0: not given */
    kvpi_model_args model;
    kvpi_step_shares shares;
    kvpi_step_model step;  /* is_roofline, step_ns and rates; the roofline is not made yet */
    uint64_t memory_bytes; /* for KV */
    uint64_t host_memory_bytes;
    uint64_t kv_bytes_per_token;
    kvpi_policy_list policies; /* more than one: a replay for each, and one table */
    const char *report;        /* file for the page, NULL: none */
    const char *why;           /* file for a line a request, NULL: none */
    bool sequential;
    bool has_model; /* one is named, or the default; it has a device then, too */
    bool json;
} kvpi_replay_args;

/* Is one named, by a row of the table or by a file? */
static inline bool kvpi_replay_args_name_model(const kvpi_replay_args *args)
{
    return args->model.model_name != NULL || args->model.config_path != NULL;
}

/* Read the command line.
 *
 * Gives:   args     for messages of later stages
 * Returns: as kvpi_args_parse
 */
int kvpi_replay_args_parse(int argc, char **argv, kvpi_args *args, kvpi_replay_args *out);

#endif
