/* What the options of a replay come to: blocks counted, a model read, the step model made. */
#ifndef KVPI_REPLAY_SETUP_H
#define KVPI_REPLAY_SETUP_H

#include "tool/report/load_report.h"
#include "tool/models/models.h"
#include "tool/replay/replay_args.h"
#include "tool/size/size.h"

typedef struct kvpi_replay_setup {
    kvpi_model model; /* with has_model, as is the next */
    kvpi_size size;
    kvpi_step_model step;
    uint64_t token_bytes; /* of KV, in a block; 0: not known */
    uint64_t block_tokens;
} kvpi_replay_setup;

/* Count what follows from the options.
 *
 * Gives:   options  blocks, of both tiers, and layer groups
 *          out      must outlive the replay: options->load.model points into it
 * Returns: TOOL_OK; TOOL_USAGE, TOOL_FAILED, a message was printed
 */
int kvpi_replay_setup_make(const kvpi_args *args, kvpi_replay_args *options,
                           kvpi_replay_setup *out);

/* Say what is modelled, for the report. Owns: points into both. */
kvpi_load_setting kvpi_replay_setup_setting(const kvpi_replay_setup *setup,
                                            const kvpi_replay_args *options);

#endif
