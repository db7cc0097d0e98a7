/* Bytes as a request trace: every format that the reader knows, strict and lenient. It must answer
 * with a set of requests or with one line of text, and never touch what is not its own, nor more
 * memory than it may.
 *
 * The first byte chooses the options, the rest is the file, which lies in memory (memfd).
 */
#define _GNU_SOURCE /* memfd_create */

#include "tool/requests/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "meter.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A line needs a piece of 64 KiB; what the budget does not count is the set itself and a stream. */
enum { MAX_MADE = 4096, FEW_BYTES = 100000, MORE_BYTES = 16384 };

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

/* Behind the tokens that it has in common with the request before, an input is made as a whole. */
static void check_common(const kvpi_request *request, const kvpi_requests_key *key,
                         const int32_t *input)
{
    const kvpi_request *before = request->before;
    const uint32_t n = kvpi_requests_common(request, key), in = (uint32_t)request->input_length;
    require(n <= in && (before != NULL || n == 0));
    if (n == 0 || (size_t)before->input_length + (size_t)before->output_length > MAX_MADE)
        return;
    const uint32_t earlier = (uint32_t)before->input_length,
                   all = earlier + (uint32_t)before->output_length;
    int32_t *tokens = malloc((all > in ? all : in) * sizeof *tokens);
    require(tokens != NULL && n <= all);
    kvpi_requests_input(before, key, 0, tokens);
    kvpi_requests_output(before, key, tokens + earlier);
    kvpi_requests_input(request, key, n, tokens);
    require(memcmp(tokens, input, in * sizeof *tokens) == 0);
    free(tokens);
}

/* The tokens of short ones, which must fit arrays of the lengths that were said. */
static void make_tokens(const kvpi_requests *requests, const kvpi_request *request)
{
    const kvpi_requests_key key = {kvpi_requests_describe(requests)->trace_block, 1};
    const size_t in = (size_t)request->input_length, out = (size_t)request->output_length;
    if (in + out > MAX_MADE)
        return;
    int32_t *input = malloc(in * sizeof *input + 1), *output = malloc(out * sizeof *output + 1);
    require(input != NULL && output != NULL);
    kvpi_requests_input(request, &key, 0, input);
    kvpi_requests_output(request, &key, output);
    for (size_t i = 0; i < in; i++)
        require(input[i] >= 0);
    for (size_t i = 0; i < out; i++)
        require(output[i] >= 0);
    check_common(request, &key, input);
    free(input);
    free(output);
}

/* In replay order, each as long as it says. */
static void check(const kvpi_requests *requests, const kvpi_requests_options *options)
{
    require(kvpi_requests_format_name(kvpi_requests_get_format(requests))[0] != '\0');
    require(kvpi_requests_mended(requests) == 0 || options->lenient);
    const int32_t block = kvpi_requests_describe(requests)->trace_block;
    for (size_t i = 0; i < kvpi_requests_count(requests); i++) {
        const kvpi_request *request = kvpi_requests_get(requests, i);
        const int32_t in = request->input_length, out = request->output_length;
        require(i == 0 ||
                request->timestamp_us >= kvpi_requests_get(requests, i - 1)->timestamp_us);
        require(in >= 0 && out >= 0 && in <= KVPI_REQUESTS_MAX_TOKENS &&
                out <= KVPI_REQUESTS_MAX_TOKENS);
        const uint32_t named = (uint32_t)(request->names_output ? in + out : in);
        require(request->n_ids == 0 ||
                (block > 0 && request->n_ids <= (named + (uint32_t)block - 1) / (uint32_t)block));
        require(request->next == NULL || request->next->shared > 0);
        require(request->n_input_ids <= (size_t)in && request->n_output_ids <= (size_t)out);
        make_tokens(requests, request);
    }
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
    require(file >= 0 && write(file, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    kvpi_requests_options_init(&options);
    options.lenient = (data[0] & 1) != 0;
    options.trace_block = data[0] & 2 ? 16 : 0;
    options.merge_models = (data[0] & 8) != 0;
    if (data[0] >> 4 > 0 && data[0] >> 4 <= KVPI_REQUESTS_FORMATS)
        options.format = (kvpi_requests_format)((data[0] >> 4) - 1);
    memset(&error, 0, sizeof(error));
    options.max_memory = data[0] & 4 ? FEW_BYTES : 0;
    if (size > 8 && memcmp(data + 1, "kvprec", 6) == 0) {
        close(file); /* fuzz_recording: what it unpacks to is not bounded by its bytes */
        return 0;
    }
    meter_begin();
    const int result = kvpi_requests_read(path, &options, &error, &requests);
    const meter used = meter_end();
    require(used.peak <= (data[0] & 4 ? FEW_BYTES + MORE_BYTES : METER_LIMIT(size)));
    require(used.n_asked <= 64 + 8 * size);
    if (result == 0) {
        check(requests, &options);
        volatile uint64_t sum = read_all(requests);
        (void)sum;
        kvpi_requests_free(requests);
    } else { /* a refusal says why, in one line */
        require(error.text[0] != '\0' && strchr(error.text, '\n') == NULL);
    }
    close(file);
    return 0;
}
