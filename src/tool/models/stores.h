/* Modelled stores, as the command line describes them. */
#ifndef KVPI_MODELS_STORES_H
#define KVPI_MODELS_STORES_H

#include "tool/args.h"
#include "tool/store/attach.h"

/* Reads the value of --disk or --remote: SIZE, SIZE@RATE, and of a remote one SIZE@RATE,LATENCY.
 * Gives a kvpi_attach_options: url and model. */
kvpi_args_reader kvpi_models_store;

#endif
