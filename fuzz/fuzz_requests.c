/* Bytes as a request trace: every format that the reader knows, strict and lenient. It must answer
 * with a set of requests or with one line of text, and never touch what is not its own.
 *
 * The first byte chooses the options, the rest is the file, which lies in memory (memfd).
 */
#define _GNU_SOURCE /* memfd_create */

#include "trace/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Look at everything that a request points to. */
static uint64_t read_all(const kvpi_requests *requests)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < kvpi_requests_count(requests); i++) {
        const kvpi_request *request = kvpi_requests_get(requests, i);
        for (size_t k = 0; k < request->n_ids; k++) {
            sum += (uint64_t)request->ids[k];
        }
        for (size_t k = 0; k < request->n_input_ids; k++) {
            sum += (uint64_t)request->input_ids[k];
        }
        for (size_t k = 0; k < request->n_output_ids; k++) {
            sum += (uint64_t)request->output_ids[k];
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    kvpi_requests_options options;
    kvpi_requests_error error;
    kvpi_requests *requests = NULL;
    if (size == 0) {
        return 0;
    }
    const int file = memfd_create("trace", 0);
    if (file < 0 || write(file, data + 1, size - 1) != (ssize_t)(size - 1)) {
        abort();
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    kvpi_requests_options_init(&options);
    options.lenient = (data[0] & 1) != 0;
    options.trace_block = data[0] & 2 ? 16 : 512;
    memset(&error, 0, sizeof(error));
    if (kvpi_requests_read(path, &options, &error, &requests) == 0) {
        volatile uint64_t sum = read_all(requests);
        (void)sum;
        kvpi_requests_free(requests);
    } else if (error.text[0] == '\0' || strchr(error.text, '\n') != NULL) {
        abort(); /* a refusal says why, in one line */
    }
    close(file);
    return 0;
}
