/* store_file: the back end that keeps records in a directory, opened on any disk. */
#ifndef KVPI_STORE_FILE_H
#define KVPI_STORE_FILE_H

#include "store/backend.h"
#include "store/file/engine/engine.h"

/* As kvpi_file_backend.open, on another disk and with another engine. The URL's engine= wins over
 * engine->choice. */
kvp_status kvpi_file_open(const struct kvpi_backend_config *config, const struct kvpi_disk *disk,
                          const struct kvpi_engine_config *engine, void **out_self, char *out_why,
                          size_t why_bytes);

#endif
