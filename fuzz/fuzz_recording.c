/* Bytes as a recording: as they are, or as payloads of frames with right checksums. Requests that
 * are read must be within what the format allows; or there is one line of text. Nothing costs more
 * memory than a frame may.
 *
 * The first byte's lowest bit chooses: 0, the rest is the file; 1, the rest is payloads, each
 * behind its length in one byte (times 4).
 */
#define _GNU_SOURCE /* memfd_create */

#include "tool/recording/packed.h"
#include "tool/recording/recording.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "meter.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of a frame: packed, unpacked, its runs, and what zstd keeps. */
#define MOST_MEMORY (4 * (uint64_t)KVPI_RECORDING_MAX_PAYLOAD)

static void write_payloads(FILE *file, const uint8_t *data, size_t size)
{
    kvpi_frame_writer frames = {0};
    kvpi_recording_error error;
    require(fwrite(KVPI_RECORDING_MAGIC, 1, KVPI_RECORDING_MAGIC_BYTES, file) ==
            KVPI_RECORDING_MAGIC_BYTES);
    while (size > 0) {
        size_t n = 4 * (size_t)*data++;
        n = n < --size ? n : size;
        require(kvpi_frame_write(&frames, file, data, n, &error) == 0);
        data += n;
        size -= n;
    }
    kvpi_frame_writer_free(&frames);
}

static void check_request(const kvpi_recorded *of, const kvpi_recording_about *about,
                          uint64_t known)
{
    uint64_t n = 0;
    require(of->time_us >= 0 && of->input_tokens >= 0 && of->output_tokens >= 0);
    require(of->input_tokens <= KVPI_RECORDING_MAX_TOKENS &&
            of->output_tokens <= KVPI_RECORDING_MAX_TOKENS);
    require(of->cached_tokens >= -1 && of->cached_tokens <= of->input_tokens);
    for (size_t i = 0; i < of->n_runs; i++) {
        require(of->runs[i].n > 0 && of->runs[i].first + of->runs[i].n <= known);
        n += of->runs[i].n;
    }
    require(n == of->n_blocks && n <= KVPI_RECORDING_MAX_BLOCKS);
    require(n <= (uint64_t)(of->input_tokens + of->output_tokens) / (uint64_t)about->block_tokens);
}

static void read_all(FILE *file)
{
    kvpi_recording_reader *reader = NULL;
    kvpi_recording_error error = {""};
    kvpi_recorded got;
    uint64_t n = 0;
    int result = kvpi_recording_open(file, &reader, &error);
    if (result == 0) {
        const kvpi_recording_about *about = kvpi_recording_describe(reader);
        require(kvpi_recording_worth(about->source) != NULL && about->block_tokens > 0);
        while ((result = kvpi_recording_next(reader, &got, &error)) == KVPI_RECORDING_REQUEST) {
            const kvpi_recording_counts counts = kvpi_recording_counted(reader);
            check_request(&got, about, counts.contents);
            require(counts.requests == ++n);
        }
        kvpi_recording_free(reader);
    }
    if (result != 0) /* a refusal says why, in one line */
        require(strstr(error.text, "byte ") != NULL && strchr(error.text, '\n') == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const int descriptor = memfd_create("recording", 0);
    require(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w+b");
    require(file != NULL);
    if (data[0] & 1)
        write_payloads(file, data + 1, size - 1);
    else
        require(fwrite(data + 1, 1, size - 1, file) == size - 1);
    rewind(file);
    meter_begin();
    read_all(file);
    const meter used = meter_end();
    require(used.peak <= MOST_MEMORY);
    fclose(file);
    return 0;
}
