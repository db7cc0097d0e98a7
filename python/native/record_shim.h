/* What kvpager.record calls: src/tool/recording with flat arguments. */
#ifndef KVPY_RECORD_SHIM_H
#define KVPY_RECORD_SHIM_H

#include "tool/recording/recording.h"

/* In the order of the fields. */
enum { KVPY_RECORD_NUMBERS = 6, KVPY_RECORD_COUNTS = 5, KVPY_RECORD_ERROR = 400 };
_Static_assert(KVPY_RECORD_ERROR == sizeof(kvpi_recording_error), "an error has its bytes");

/* Each gives 0, or -1 with a reason in error [KVPY_RECORD_ERROR]. */
int kvpy_record_open(kvpi_recorder **out, const char *path, uint64_t source, int32_t block_tokens,
                     int64_t began_us, uint64_t max_contents, const char *engine, const char *model,
                     const uint8_t *key, char *error);
int kvpy_record_add(kvpi_recorder *recorder, const int64_t *numbers, const void *session,
                    size_t session_bytes, const void *scope, size_t scope_bytes, const void *hashes,
                    size_t n, size_t n_bytes, char *error);
int kvpy_record_flush(kvpi_recorder *recorder, char *error);
int kvpy_record_close(kvpi_recorder *recorder, char *error);
void kvpy_record_counts(const kvpi_recorder *recorder, uint64_t *out);

#endif
