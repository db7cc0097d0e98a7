/* side: links and shapes, as a sender and a receiver both need them. */
#include "transfer/side.h"
#include "base/sized.h"

#include <string.h>

static void transfer_defaults(kvp_transfer_config *config)
{
    *config = (kvp_transfer_config){
        .struct_size = sizeof(kvp_transfer_config), .max_transfers = 64, .max_links = 8};
}

void kvp_transfer_config_init_sized(kvp_transfer_config *config, size_t config_size)
{
    kvp_transfer_config full;
    transfer_defaults(&full);
    kvpi_sized_init(config, config_size, &full, sizeof(full));
}

static struct kvpi_shape shape_of_side(const kvp_transfer_config *config, const kvp_layout *layout)
{
    const uint32_t one = 1;
    uint8_t first_byte;
    memcpy(&first_byte, &one, 1);
    return (struct kvpi_shape){
        .type = layout->type,
        .flags = (layout->k_scales.size > 0 ? KVPI_SHAPE_K_SCALES : 0u) |
                 (layout->v_scales.size > 0 ? KVPI_SHAPE_V_SCALES : 0u) |
                 (first_byte == 1 ? 0u : KVPI_SHAPE_BIG_ENDIAN),
        .k_size = layout->k.size,
        .v_size = layout->v.size,
        .block_tokens = layout->block_tokens,
        .slice = {layout->first_layer, layout->n_layers, layout->first_head, layout->n_heads},
        .model_version = config->model_version,
        .model = kvpi_transfer_hash(config->model, config->model_bytes)};
}

kvp_status kvpi_side_init(struct kvpi_side *side, const kvp_transfer_config *config)
{
    kvp_transfer_config own;
    kvp_config cache;
    kvp_layout layout;
    transfer_defaults(&own);
    config = kvpi_sized_take(config, &own, sizeof(own));
    if (!config || !config->cache || !config->memory ||
        (!config->model && config->model_bytes > 0) || config->max_transfers < 1 ||
        config->max_transfers > 4096 || config->max_links < 1 ||
        config->max_links > KVP_TRANSFER_LINKS_MAX || config->reserved != 0)
        return KVP_E_ARG;
    if (kvp_cache_config(config->cache, &cache) != KVP_OK ||
        kvp_memory_describe(config->memory, &layout, NULL) != KVP_OK ||
        layout.block_tokens != cache.block_tokens || layout.n_blocks < cache.n_blocks ||
        cache.n_groups != 1 || /* a row of each group would need a memory of each */
        cache.state_slots > 0)
        return KVP_E_ARG;
    *side = (struct kvpi_side){
        .config = *config, .layout = layout, .shape = shape_of_side(config, &layout)};
    side->config.model = NULL;
    return KVP_OK;
}

static int is_link(const kvp_link *link)
{
    return link && link->lend && link->post && link->take && link->give_back && link->progress &&
           link->max_message >= KVP_LINK_MESSAGE_MIN && link->max_message <= INT32_MAX;
}

kvp_status kvpi_side_attach(struct kvpi_side *side, const kvp_link *link, uint32_t *out_link)
{
    kvp_link own = {0};
    link = kvpi_sized_take(link, &own, sizeof(own));
    if (!is_link(link) || !out_link)
        return KVP_E_ARG;
    for (uint32_t i = 0; i < side->config.max_links; i++) {
        if (side->links[i].attached)
            continue;
        side->links[i] = (struct kvpi_side_link){*link, 1, KVP_OK};
        *out_link = i;
        return KVP_OK;
    }
    return KVP_E_AGAIN;
}

void kvpi_side_break(struct kvpi_side *side, uint32_t link, kvp_status status)
{
    if (side->links[link].broken == KVP_OK)
        side->links[link].broken = status;
}

kvp_status kvpi_side_lend(struct kvpi_side *side, uint32_t link, size_t n_bytes, uint8_t **out)
{
    struct kvpi_side_link *l = &side->links[link];
    void *buffer;
    if (l->broken != KVP_OK)
        return l->broken;
    const kvp_status status = l->link.lend(l->link.context, n_bytes, &buffer);
    if (status == KVP_OK)
        *out = buffer;
    else if (status != KVP_E_AGAIN)
        kvpi_side_break(side, link, status);
    return status;
}

kvp_status kvpi_side_post(struct kvpi_side *side, uint32_t link, size_t n_bytes,
                          const struct kvpi_transfer_head *head)
{
    struct kvpi_side_link *l = &side->links[link];
    uint8_t *message;
    kvp_status status = kvpi_side_lend(side, link, n_bytes, &message); /* the same one again */
    if (status != KVP_OK)
        return status;
    kvpi_transfer_seal(message, n_bytes, head);
    status = l->link.post(l->link.context, n_bytes);
    if (status != KVP_OK)
        kvpi_side_break(side, link, status);
    return status;
}

kvp_status kvpi_side_tell(struct kvpi_side *side, uint32_t link,
                          const struct kvpi_transfer_head *head, kvp_status status)
{
    const size_t n_bytes = KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_STATUS_BYTES;
    uint8_t *message;
    const kvp_status lent = kvpi_side_lend(side, link, n_bytes, &message);
    if (lent != KVP_OK)
        return lent;
    kvpi_bytes_store(message + KVPI_TRANSFER_HEAD_BYTES, (uint32_t)(int32_t)status, 4);
    kvpi_bytes_store(message + KVPI_TRANSFER_HEAD_BYTES + 4, 0, 4);
    return kvpi_side_post(side, link, n_bytes, head);
}

int kvpi_transfer_is_failure(kvp_status status)
{
    switch ((int)status) {
#define CASE(name, number, class_, text) case number:
        KVP_STATUS_TABLE(CASE)
#undef CASE
        return status != KVP_OK;
    default: return 0;
    }
}

kvp_status kvpi_side_told(const uint8_t *body)
{
    const kvp_status status = (kvp_status)(int32_t)kvpi_bytes_load32(body);
    return kvpi_transfer_is_failure(status) ? status : KVP_E_PEER;
}

void kvpi_transfer_tell(const struct kvpi_transfer *t, kvp_transfer_info *out_info)
{
    uint32_t owed = 0;
    for (uint64_t bits = t->owed; bits != 0; bits &= bits - 1)
        owed++;
    *out_info = (kvp_transfer_info){.state = t->state,
                                    .status = t->status,
                                    .by_peer = t->by_peer,
                                    .begin = t->begin,
                                    .end = t->end,
                                    .owed = owed,
                                    .seq = t->seq,
                                    .chunks = t->chunks,
                                    .bytes = t->bytes};
}
