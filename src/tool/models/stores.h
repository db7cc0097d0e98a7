/* Modelled stores, as the command line describes them. */
#ifndef KVPI_MODELS_STORES_H
#define KVPI_MODELS_STORES_H

#include "tool/args.h"
#include "tool/store/attach.h"

/* Take the value of --disk or --remote: SIZE, SIZE@RATE, and of a remote one SIZE@RATE,LATENCY.
 *
 * Takes:   option   for messages
 * Gives:   out      url and model
 * Returns: 0; KVPI_ARGS_WRONG, a message was printed
 */
int kvpi_models_store(const kvpi_args *args, int option, bool is_remote, const char *value,
                      kvpi_attach_options *out);

#endif
