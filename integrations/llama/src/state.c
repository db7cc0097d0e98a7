/* state: see state.h. llama.cpp's bytes of a sequence hold positions, K and V of every layer; what
 * they look like is its own affair. */
#include "state.h"

#include <kvpager/hash.h>

#include <llama.h>
#include <stdlib.h>
#include <string.h>

enum { SUM_TOKENS = 4096, SUM_BYTES = SUM_TOKENS * 4 };

int kvpi_state_reserve(kvpi_bytes *bytes, size_t n)
{
    if (n <= bytes->room)
        return 1;
    if (bytes->is_lent)
        return 0;
    const size_t room = n + n / 4;
    uint8_t *data = realloc(bytes->data, room);
    if (data == NULL)
        return 0;
    bytes->data = data;
    bytes->room = room;
    return 1;
}

void kvpi_state_free(kvpi_bytes *bytes)
{
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}

kvp_status kvpi_state_get(kvpi_ids *ids, uint32_t id, uint32_t begin, uint32_t end, kvpi_bytes *out)
{
    struct llama_context *context = ids->moves.context;
    const uint32_t spare = kvpi_state_spare(ids);
    kvp_status status = KVP_OK;
    kvpi_moves_copy(&ids->moves, id, spare, begin, end);
    kvpi_moves_flush(&ids->moves);
    const size_t n = llama_state_seq_get_size_ext(context, (llama_seq_id)spare, 0);
    if (!kvpi_state_reserve(out, out->n + n))
        status = KVP_E_NO_MEMORY;
    else if (n == 0 || llama_state_seq_get_data_ext(context, out->data + out->n, n,
                                                    (llama_seq_id)spare, 0) != n)
        status = KVP_E_CORRUPT;
    else
        out->n += n;
    kvpi_state_close(ids);
    return status;
}

int kvpi_state_open(kvpi_ids *ids, const uint8_t *bytes, size_t n, uint32_t begin, uint32_t end)
{
    struct llama_context *context = ids->moves.context;
    const llama_seq_id spare = (llama_seq_id)kvpi_state_spare(ids);
    kvpi_moves_flush(&ids->moves);
    if (llama_state_seq_set_data_ext(context, bytes, n, spare, 0) == n &&
        llama_memory_seq_pos_min(llama_get_memory(context), spare) == (llama_pos)begin &&
        llama_memory_seq_pos_max(llama_get_memory(context), spare) + 1 == (llama_pos)end)
        return 1;
    kvpi_state_close(ids);
    return 0;
}

void kvpi_state_close(kvpi_ids *ids)
{
    kvpi_moves_cut(&ids->moves, kvpi_state_spare(ids), 0);
}

/* The content hash is public and fast, and hashes numbers of four bytes: the last ones are filled
 * up with zeros, and the root knows how many bytes there are. */
kvp_hash kvpi_state_sum(const kvp_hash *before, const void *bytes, size_t n)
{
    int32_t tail[SUM_TOKENS];
    kvp_hash sum, next;
    const size_t n_units = n / SUM_BYTES;
    (void)kvp_hash_root(SUM_TOKENS, n, before->bytes, sizeof before->bytes, &sum);
    for (size_t i = 0; i <= n_units; i++) {
        const uint8_t *part = (const uint8_t *)bytes + i * SUM_BYTES;
        const size_t n_part = i < n_units ? SUM_BYTES : n % SUM_BYTES;
        const kvp_hash_input input = {
            .unit_tokens = SUM_TOKENS, .n_tokens = SUM_TOKENS, .tokens = tail};
        memset((uint8_t *)tail + n_part, 0, SUM_BYTES - n_part);
        memcpy(tail, part, n_part);
        (void)kvp_hash_units(&input, &sum, &next);
        sum = next;
    }
    return sum;
}
