/* mirror_life: a mirror's memory, and what can be asked of it. */
#include "wire/mirror.h"

#include "base/aligned.h"
#include "base/sized.h"

typedef struct kvp_wire_mirror mirror;

/* ------------------------------------------------------------------------------------ creation */

struct mirror_places {
    struct kvpi_wire_table_places table;
    size_t items;
    size_t closed;
    size_t copies;
    size_t values;
    size_t moves;
    size_t bytes;
};

static kvp_status plan_mirror(const kvp_wire_config *config, struct mirror_places *places)
{
    struct kvpi_wire_layout layout = {0};
    if (!kvpi_wire_config_is_valid(config))
        return KVP_E_ARG;
    kvpi_wire_layout_take(&layout, 1, sizeof(mirror));
    places->items = kvpi_wire_layout_take(&layout, config->max_seqs, sizeof(kvp_wire_news_item));
    places->closed = kvpi_wire_layout_take(&layout, config->max_seqs, sizeof(uint32_t));
    places->copies = kvpi_wire_layout_take(&layout, config->max_copies, sizeof(kvp_copy));
    places->values = kvpi_wire_layout_take(&layout, config->max_step_tokens, sizeof(int32_t));
    places->moves = kvpi_wire_layout_take(&layout, (uint64_t)config->n_groups * config->max_moves,
                                          sizeof(kvp_slot_move));
    places->table = kvpi_wire_table_plan(&layout, config);
    places->bytes = layout.bytes;
    return layout.overflow ? KVP_E_TOO_LONG : KVP_OK;
}

kvp_status kvp_wire_mirror_bytes(const kvp_wire_config *config, size_t *out_bytes)
{
    struct mirror_places places;
    config = kvpi_sized(config, sizeof(*config));
    kvp_status status = out_bytes == NULL ? KVP_E_ARG : plan_mirror(config, &places);
    if (status == KVP_OK)
        *out_bytes = places.bytes;
    return status;
}

kvp_status kvp_wire_mirror_create(const kvp_wire_config *config, void *memory, size_t memory_bytes,
                                  kvp_wire_mirror **out_mirror)
{
    struct mirror_places places;
    uint32_t owned;
    if (out_mirror == NULL)
        return KVP_E_ARG;
    config = kvpi_sized(config, sizeof(*config));
    kvp_status status = plan_mirror(config, &places);
    if (status == KVP_OK)
        status = kvpi_wire_memory(&memory, memory_bytes, places.bytes, &owned);
    if (status != KVP_OK)
        return status;
    mirror *m = memory;
    char *start = memory;
    *m = (mirror){.config = *config, .owned = owned};
    m->items = (kvp_wire_news_item *)(void *)(start + places.items);
    m->closed = (uint32_t *)(void *)(start + places.closed);
    m->copies = (kvp_copy *)(void *)(start + places.copies);
    m->values = (int32_t *)(void *)(start + places.values);
    m->moves = (kvp_slot_move *)(void *)(start + places.moves);
    kvpi_wire_table_init(&m->table, config, memory, places.table);
    *out_mirror = m;
    return KVP_OK;
}

void kvp_wire_mirror_destroy(kvp_wire_mirror *m)
{
    if (m != NULL && m->owned)
        kvpi_aligned_free(m);
}

/* --------------------------------------------------------------------------------------- reads */

kvp_status kvp_wire_mirror_info_get(const kvp_wire_mirror *m, kvp_wire_mirror_state *out_state)
{
    if (m == NULL || out_state == NULL)
        return KVP_E_ARG;
    *out_state = (kvp_wire_mirror_state){m->epoch, m->number, m->table.n_seqs};
    return KVP_OK;
}

kvp_status kvp_wire_mirror_seq(const kvp_wire_mirror *m, uint32_t worker_id, kvp_wire_seq *out_seq)
{
    if (m == NULL || out_seq == NULL || worker_id >= m->config.max_seqs)
        return KVP_E_ARG;
    const struct kvpi_wire_seq *seq = &m->table.seqs[worker_id];
    *out_seq = (kvp_wire_seq){
        .status = seq->status,
        .n_tokens = seq->tokens,
        .known_tokens = seq->known,
        .computed_tokens = seq->computed,
        .cached_tokens = seq->cached,
        .step_tokens = seq->step,
        .last_token = seq->last,
        .n_blocks = kvpi_wire_entries(&m->table, 0, seq->grains),
        .row = kvpi_wire_row(&m->table, worker_id, 0),
        .windows = kvpi_wire_windows(&m->table, worker_id),
        .tree_tokens = seq->nodes,
        .node_tokens = kvpi_wire_node_tokens(&m->table, worker_id),
        .node_parents = kvpi_wire_node_parents(&m->table, worker_id),
        .read_slot = seq->read_slot,
        .write_slot = seq->write_slot,
        .n_write_slots = seq->write_slot == 0 ? 0 : seq->n_ring + 1,
        .write_slots = kvpi_wire_writes(&m->table, worker_id),
        .row_tokens = seq->grains * m->table.grain,
    };
    return KVP_OK;
}

uint64_t kvp_wire_mirror_digest(const kvp_wire_mirror *m)
{
    return m == NULL ? 0 : kvpi_wire_table_digest(&m->table);
}
