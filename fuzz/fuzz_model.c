/* Any bytes as a config.json: it is read as a model, or refused in one line. Of a model that was
 * read, everything that `kvpager size` says is counted and printed, for options that the first
 * bytes choose; the figures must add up. */
#define _GNU_SOURCE /* memfd_create */

#include "tool/models/config/config.h"
#include "tool/size/size_report.h"

#include <kvpager/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "meter.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_OPTION_BYTES = 4 };

static kvpi_size_options options_of(const uint8_t *bytes)
{
    static const uint64_t blocks[] = {1, 16, 17, 65536}, contexts[] = {1, 8192, 100000, 1 << 27};
    static const uint64_t memories[] = {0, 1000, UINT64_C(80) << 30, UINT64_C(1) << 62};
    return (kvpi_size_options){
        .tensor_parallel = 1u << bytes[0] % 8,
        .block_tokens = blocks[bytes[1] % 4],
        .context_tokens = contexts[bytes[1] / 4 % 4],
        .sink_tokens = bytes[1] / 16 % 2 ? 4 : 0,
        .kv_dtype = kvpi_models_dtype_of(kvpi_models_kv_dtypes[bytes[2] % 10]),
        .weights_dtype = (kvpi_dtype)(bytes[2] / 16 % (KVPI_DTYPE_NVFP4 + 1)),
        .memory_bytes = memories[bytes[3] % 4],
        .utilization_milli = bytes[3] & 4 ? 900 : 1000,
    };
}

static void check_shape(const kvpi_model *model)
{
    uint64_t n_layers = 0;
    require(model->n_layers >= 1 && model->n_layers <= KVPI_MODELS_MAX_LAYERS);
    require(model->n_kinds >= 1 && model->n_kinds <= KVPI_MODELS_MAX_KINDS && model->q_heads >= 1);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        require(kind->n_layers >= 1 && kind->entry_tokens <= KVPI_MODELS_MAX_ENTRY);
        require((kind->keeps == KVPI_KEEPS_HEADS) == (kind->kv_heads > 0));
        require(kind->keeps == KVPI_KEEPS_STATE ||
                kvpi_models_entry_bytes(kind, 1, KVPI_DTYPE_BF16) > 0);
        n_layers += kind->keeps <= KVPI_KEEPS_LATENT ? kind->n_layers : 0;
    }
    require(n_layers >= 1 && n_layers <= 2 * KVPI_MODELS_MAX_LAYERS);
    require(kvpi_models_divides(model, 1));
}

static void check_weights(const kvpi_model *model, kvpi_dtype dtype)
{
    const kvpi_models_count count = kvpi_models_count_parameters(model);
    const kvpi_models_traffic traffic = kvpi_models_count_traffic(model, dtype);
    const uint64_t bytes = kvpi_models_weights_bytes(model, dtype);
    require(count.total == count.embeddings + count.layers && count.experts <= count.layers);
    require(count.active <= (count.total + count.embeddings) * (model->n_passes + 1));
    require(traffic.every_step <= bytes && traffic.experts <= bytes);
}

static void check_size(const kvpi_size *size, const kvpi_size_options *options)
{
    const uint64_t pool_bytes = size->pool_block_bytes;
    uint64_t bytes = 0, blocks = 0, n_rows = 0;
    for (uint32_t g = 0; g < size->n_groups; g++) {
        const kvpi_size_group *group = &size->groups[g];
        require(group->block_tokens > 0 && group->block_tokens % options->block_tokens == 0);
        require(group->block_bytes > 0 && group->block_bytes % group->span_bytes == 0);
        require(group->sequence_blocks >= 1);
        require(group->n_rows * pool_bytes >= group->block_bytes);
        bytes += group->blocks * group->block_bytes;
        blocks += group->blocks * group->n_rows;
        n_rows += group->n_rows;
    }
    require(n_rows == size->n_rows && n_rows >= 1 && n_rows <= KVP_GROUPS_MAX);
    require(blocks <= size->pool_blocks && size->pool_blocks <= size->kv_bytes / pool_bytes);
    require(size->n_groups >= 1 && bytes <= size->kv_bytes);
}

static void report(const kvpi_model *model, const kvpi_size_options *options)
{
    kvpi_size size;
    char *text = NULL;
    size_t n = 0;
    const kvpi_size_report report = {.model = model, .options = options, .size = &size};
    if (kvpi_size_count(model, options, &size) != 0)
        return;
    if (options->memory_bytes > 0)
        check_size(&size, options);
    FILE *file = open_memstream(&text, &n);
    require(file != NULL);
    kvpi_size_print(&report, file);
    json_t *figures = kvpi_size_figures(&report);
    require(kvpi_figures_print(figures, file) == 0 && fclose(file) == 0 && n > 0);
    json_decref(figures);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    kvpi_model model;
    kvpi_models_error error = {""};
    if (size < N_OPTION_BYTES)
        return 0;
    kvpi_size_options options = options_of(data);
    const size_t n = size - N_OPTION_BYTES;
    const int file = memfd_create("config", 0);
    require(file >= 0 && write(file, data + N_OPTION_BYTES, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    meter_begin();
    const int result = kvpi_models_read(path, &model, &error);
    const meter used = meter_end();
    require(used.peak <= METER_LIMIT(n) && used.n_asked <= 64 + 8 * n);
    if (result != 0) {
        require(error.text[0] != '\0' && strchr(error.text, '\n') == NULL);
    } else {
        check_shape(&model);
        if (options.block_tokens % kvpi_models_longest_entry(&model) != 0)
            options.block_tokens = kvpi_models_longest_entry(&model);
        if (model.unknown[0] == '\0')
            check_weights(&model, options.weights_dtype);
        else
            options.memory_bytes = 0;
        if (kvpi_models_divides(&model, options.tensor_parallel))
            report(&model, &options);
    }
    close(file);
    return 0;
}
