/* See record_shim.h. */
#include "record_shim.h"

#include <string.h>

static int told(int result, const kvpi_recording_error *why, char *error)
{
    if (result != 0)
        memcpy(error, why, sizeof *why);
    return result;
}

int kvpy_record_open(kvpi_recorder **out, const char *path, uint64_t source, int32_t block_tokens,
                     int64_t began_us, uint64_t max_contents, const char *engine, const char *model,
                     const uint8_t *key, char *error)
{
    kvpi_recording_error why = {""};
    kvpi_recorder_options options = {.path = path,
                                     .about = {.source = source,
                                               .block_tokens = block_tokens,
                                               .began_us = began_us,
                                               .max_contents = max_contents}};
    (void)strncat(options.about.engine, engine, sizeof options.about.engine - 1);
    (void)strncat(options.about.model, model, sizeof options.about.model - 1);
    memcpy(options.key, key, sizeof options.key);
    return told(kvpi_recorder_open(&options, out, &why), &why, error);
}

int kvpy_record_add(kvpi_recorder *recorder, const int64_t *numbers, const void *session,
                    size_t session_bytes, const void *scope, size_t scope_bytes, const void *hashes,
                    size_t n, size_t n_bytes, char *error)
{
    kvpi_recording_error why = {""};
    kvpi_recorded request = {.time_us = numbers[0],
                             .input_tokens = numbers[1],
                             .output_tokens = numbers[2],
                             .cached_tokens = numbers[3],
                             .first_us = numbers[4],
                             .last_us = numbers[5]};
    if (session_bytes > 0)
        request.session = kvpi_recorder_session(recorder, session, session_bytes);
    if (scope_bytes > 0)
        request.scope = kvpi_recorder_scope(recorder, scope, scope_bytes);
    return told(kvpi_recorder_add_hashes(recorder, &request, hashes, n, n_bytes, &why), &why,
                error);
}

int kvpy_record_flush(kvpi_recorder *recorder, char *error)
{
    kvpi_recording_error why = {""};
    return told(kvpi_recorder_flush(recorder, &why), &why, error);
}

int kvpy_record_close(kvpi_recorder *recorder, char *error)
{
    kvpi_recording_error why = {""};
    return told(kvpi_recorder_close(recorder, &why), &why, error);
}

void kvpy_record_counts(const kvpi_recorder *recorder, uint64_t *out)
{
    const kvpi_recording_counts counts = kvpi_recorder_counts(recorder);
    out[0] = counts.requests;
    out[1] = counts.contents;
    out[2] = counts.forgotten;
    out[3] = counts.lost;
    out[4] = counts.unnumbered;
}
