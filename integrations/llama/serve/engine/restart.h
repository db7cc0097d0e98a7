/* restart: what is cached, from one run of the server to the next (--snapshot). The file is that of
 * kvp_llama_save. It is loaded before the first request, and replaced after the last one.
 *
 * KV is of a model: libllama tells metadata and sizes, which two fine-tunes can share. So the files
 * of the weights count, too: their sizes, and 256 pieces of 16 KiB that are spread over each. */
#ifndef KVPI_SERVE_RESTART_H
#define KVPI_SERVE_RESTART_H

#include "loop.h"

/* Can a snapshot be written at this path? -1: `out_why` says why not. */
int kvpi_restart_check(const char *path, kvp_why *out_why);

/* Notes which weights these are in loop->identity, for --snapshot and --cache-disk. -1: their files
 * cannot be read. */
int kvpi_restart_identify(kvpi_loop *loop, kvp_why *out_why);

/* Restores what there is, before a namespace is opened, and notes its namespaces. What cannot be
 * restored is left out: loop->restored and loop->not_restored tell.
 * Nothing is done without --snapshot. */
void kvpi_restart_load(kvpi_loop *loop);

/* After kvpi_loop_stop. -1: `out_why` says why; the old file is there. */
int kvpi_restart_save(kvpi_loop *loop, kvp_why *out_why);

#endif
