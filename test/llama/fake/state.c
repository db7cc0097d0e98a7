/* state: cells of an id as bytes, and adapters. As llama.cpp's, the bytes have positions and KV, no
 * ids; setting them empties the id first, and takes any free cells. */
#include "fake.h"

#include <stdio.h>
#include <string.h>

enum { MARK = 0x5EA1 };

typedef struct saved_cell {
    int32_t pos;
    uint32_t mark;
    uint64_t kv;
} saved_cell;

uint64_t fake_states_got, fake_states_set;
static uint32_t refuse_at;

void fake_refuse_state(uint32_t n)
{
    refuse_at = n;
}

size_t llama_state_seq_get_size_ext(struct llama_context *context, llama_seq_id id, uint32_t flags)
{
    uint64_t kv;
    uint32_t n = 0;
    llama_pos pos = -1;
    (void)flags;
    while ((pos = fake_next_cell(context, id, pos, &kv)) >= 0)
        n += fake_is_left_out(context, id, pos) ? 0 : 1;
    return sizeof n + n * sizeof(saved_cell);
}

size_t llama_state_seq_get_data_ext(struct llama_context *context, uint8_t *out, size_t size,
                                    llama_seq_id id, uint32_t flags)
{
    uint32_t n = 0;
    llama_pos pos = -1;
    saved_cell cell = {.mark = MARK};
    fake_states_got++;
    if (size < llama_state_seq_get_size_ext(context, id, flags))
        return 0;
    while ((pos = fake_next_cell(context, id, pos, &cell.kv)) >= 0) {
        if (fake_is_left_out(context, id, pos))
            continue;
        cell.pos = pos;
        memcpy(out + sizeof n + n++ * sizeof cell, &cell, sizeof cell);
    }
    memcpy(out, &n, sizeof n);
    return sizeof n + n * sizeof cell;
}

size_t llama_state_seq_set_data_ext(struct llama_context *context, const uint8_t *bytes,
                                    size_t size, llama_seq_id id, uint32_t flags)
{
    uint32_t n;
    saved_cell cell;
    (void)flags;
    fake_states_set++;
    (void)llama_memory_seq_rm(llama_get_memory(context), id, -1, -1);
    memcpy(&n, bytes, sizeof n);
    if (size < sizeof n + n * sizeof cell || (refuse_at > 0 && --refuse_at == 0))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&cell, bytes + sizeof n + i * sizeof cell, sizeof cell);
        if (cell.mark != MARK)
            fake_broken("bytes that are no state", id, (int64_t)i);
        if (!fake_set_cell(context, id, cell.pos, cell.kv)) {
            (void)llama_memory_seq_rm(llama_get_memory(context), id, -1, -1);
            return 0; /* no cell is free */
        }
    }
    return sizeof n + n * sizeof cell;
}

int32_t llama_set_adapters_lora(struct llama_context *context, struct llama_adapter_lora **adapters,
                                size_t n_adapters, float *scales)
{
    fake_shift_tokens(context, n_adapters > 0 ? adapters[0]->shift * (int32_t)scales[0] : 0);
    return 0;
}

uint64_t llama_adapter_get_alora_n_invocation_tokens(const struct llama_adapter_lora *adapter)
{
    return adapter->n_invocation_tokens;
}

void llama_synchronize(struct llama_context *context)
{
    (void)context;
}

/* --------------------------------------------------------------------------------- what it is */

const char *fake_commit = "fake";

const char *llama_print_system_info(void)
{
    return "FAKE : 1 | ";
}

const char *ggml_version(void)
{
    return "0.0.0";
}

const char *ggml_commit(void)
{
    return fake_commit;
}

int32_t llama_model_meta_count(const struct llama_model *model)
{
    (void)model;
    return 1;
}

int32_t llama_model_meta_key_by_index(const struct llama_model *model, int32_t i, char *out,
                                      size_t capacity)
{
    (void)model;
    return i == 0 ? snprintf(out, capacity, "general.architecture") : -1;
}

int32_t llama_model_meta_val_str_by_index(const struct llama_model *model, int32_t i, char *out,
                                          size_t capacity)
{
    return i == 0 ? llama_model_meta_val_str(model, "general.architecture", out, capacity) : -1;
}
