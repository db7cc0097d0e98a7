/* Bytes as a batch of KV events, which is gone through, and what is taken of it goes into a
 * recording: it must be read as it was written. A batch that is refused says why, in one line.
 * Nothing costs more memory than its bytes allow.
 *
 * Several batches, each behind its length in two bytes.
 */
#include "tool/record/batch.h"
#include "tool/record/lookups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meter.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCK = 16, MAX_CONTENTS = 64 };

/* Of lookups.c, what zstd keeps, and hashes: 8 bytes for one at least. */
#define MOST_MEMORY ((UINT64_C(16) << 20) + 64 * (uint64_t)size)

static kvpi_recorder *open_recorder(const char *path, uint64_t source)
{
    const kvpi_recorder_options to = {.path = path,
                                      .about = {.source = source,
                                                .block_tokens = BLOCK,
                                                .max_contents = MAX_CONTENTS,
                                                .engine_blocks = 8}};
    kvpi_recorder *recorder = NULL;
    kvpi_recording_error error;
    unlink(path);
    require(kvpi_recorder_open(&to, &recorder, &error) == 0);
    return recorder;
}

/* A batch, as the recorder takes it: nothing, if any of it is wrong. False: it stops. */
static bool take(kvpi_batch *batch, kvpi_lookups *lookups, const uint8_t *bytes, size_t n,
                 int64_t now)
{
    for (int takes = 0; takes < 2; takes++) {
        kvpi_event event;
        kvpi_recording_error error;
        uint64_t n_events = 0;
        int result = kvpi_batch_begin(batch, bytes, n);
        while (result == 0 && (result = kvpi_batch_next(batch, &event)) == 1) {
            require(++n_events <= n && event.n_hashes <= n);
            require(event.kind != KVPI_EVENT_STORED ||
                    (event.n_hashes > 0 && event.block_tokens > 0));
            result = 0;
            if (takes && kvpi_lookups_event(lookups, &event, now, (uint64_t)now, bytes[0] == 0x93,
                                            &error) != 0) {
                require(strchr(error.text, '\n') == NULL);
                return false;
            }
        }
        if (result < 0) {
            require(!takes && batch->error.text[0] != '\0' &&
                    strchr(batch->error.text, '\n') == NULL);
            return true;
        }
    }
    return true;
}

static void read_back(const char *path)
{
    kvpi_recording_reader *reader = NULL;
    kvpi_recording_error error;
    kvpi_recorded got;
    FILE *file = fopen(path, "rb");
    int result;
    require(file != NULL && kvpi_recording_open(file, &reader, &error) == 0);
    while ((result = kvpi_recording_next(reader, &got, &error)) == KVPI_RECORDING_REQUEST)
        require(got.cached_tokens <= got.input_tokens);
    require(result == KVPI_RECORDING_END && kvpi_recording_is_whole(reader));
    kvpi_recording_free(reader);
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    kvpi_batch batch = {0};
    kvpi_recording_error error;
    int64_t now = 0;
    bool goes_on = true;
    const uint64_t source = size % 2 ? KVPI_RECORDING_LOOKUPS : KVPI_RECORDING_EVENTS;
    snprintf(path, sizeof path, "/tmp/kvpager-fuzz-batch-%d", (int)getpid());
    meter_begin();
    kvpi_recorder *recorder = open_recorder(path, source);
    const kvpi_recording_about about = {
        .source = source, .block_tokens = BLOCK, .max_contents = MAX_CONTENTS};
    kvpi_lookups *lookups = kvpi_lookups_new(recorder, &about);
    require(lookups != NULL);
    for (size_t at = 0; goes_on && size - at > 2;) {
        size_t n = data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        n = n < size - at ? n : size - at;
        uint8_t *own = malloc(n + (n == 0)); /* so that a read behind it is seen */
        require(own != NULL);
        memcpy(own, data + at, n);
        goes_on = n == 0 || take(&batch, lookups, own, n, ++now * 20000000);
        const kvpi_counters counters = {(uint64_t)now * 100, (uint64_t)now * 60};
        if (source == KVPI_RECORDING_EVENTS)
            require(kvpi_lookups_count(lookups, &counters, now * 20000000, n % 2, &error) == 0);
        free(own);
        at += n;
    }
    require(kvpi_lookups_end(lookups, &error) == 0);
    kvpi_lookups_free(lookups);
    require(kvpi_recorder_close(recorder, &error) == 0);
    kvpi_batch_free(&batch);
    const meter used = meter_end();
    require(used.peak <= MOST_MEMORY);
    read_back(path);
    unlink(path);
    return 0;
}
