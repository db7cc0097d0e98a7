/* file: the back end that keeps records in a directory, opened on any disk. */
#ifndef KVPI_STORE_FILE_H
#define KVPI_STORE_FILE_H

#include "store/file/disk.h"
#include "store/backend.h"

/* As kvpi_file_backend.open, on another disk and with another number of threads; 0: operations are
 * done when they begin. */
kvp_status kvpi_file_open(const struct kvpi_backend_config *config, const struct kvpi_disk *disk,
                          uint32_t n_threads, void **out_self, char *out_why, size_t why_bytes);

#endif
