/* side: links and shapes, as a sender and a receiver both need them. */
#include "transfer/side.h"
#include "base/sized.h"
#include "base/why.h"

#include <kvpager/states.h>
#include <kvpager/windows.h>

#include <string.h>

void kvp_transfer_config_init(kvp_transfer_config *config)
{
    if (config == NULL)
        return;
    *config = (kvp_transfer_config){
        .struct_size = sizeof(kvp_transfer_config), .max_transfers = 64, .max_links = 8};
}

/* What is the same for all groups; 1: the machine is big-endian. */
static uint32_t is_big_endian(void)
{
    const uint32_t one = 1;
    uint8_t first_byte;
    memcpy(&first_byte, &one, 1);
    return first_byte != 1;
}

static struct kvpi_shape_group side_group_of(const kvp_layout *layout, kvp_window window)
{
    return (struct kvpi_shape_group){
        .type = layout->type,
        .flags = (layout->k_scales.size > 0 ? KVPI_SHAPE_K_SCALES : 0u) |
                 (layout->v_scales.size > 0 ? KVPI_SHAPE_V_SCALES : 0u) |
                 (is_big_endian() ? KVPI_SHAPE_BIG_ENDIAN : 0u),
        .k_size = layout->k.size,
        .v_size = layout->v.size,
        .block_tokens = layout->block_tokens,
        .slice = {layout->first_layer, layout->n_layers, layout->first_head, layout->n_heads},
        .window = window};
}

static int fields_wrong(const kvp_transfer_config *config, kvp_why *why)
{
    return kvpi_why_if(why, !config->cache, "cache", NULL, "is NULL") ||
           kvpi_why_if(why, !config->model && config->model_bytes > 0, "model", NULL,
                       "is NULL, and model_bytes is not 0") ||
           kvpi_why_range(why, "max_transfers", config->max_transfers, 1, 4096) ||
           kvpi_why_range(why, "max_links", config->max_links, 1, KVP_TRANSFER_LINKS_MAX) ||
           kvpi_why_range(why, "reserved", config->reserved, 0, 0);
}

static int memory_wrong(const kvp_memory *memory, const kvp_config *cache, uint32_t group,
                        kvp_layout *layout, kvp_why *why)
{
    const uint64_t number = group;
    const int is_state = group == cache->n_groups;
    const uint32_t S = is_state ? 1 : cache->groups[group].block_tokens;
    const uint32_t n_blocks = is_state ? cache->state_slots : cache->n_blocks;
    if (kvpi_why_if(why, !memory, "memories", &number, "the layer group that has no memory"))
        return 1;
    (void)kvp_memory_describe(memory, layout, NULL);
    const int is_bytes = layout->type == KVP_BYTES;
    return kvpi_why_if(why, is_bytes != is_state, "memories", &number,
                       is_state ? "expected KVP_BYTES for recurrent state"
                                : "expected no KVP_BYTES for KV") ||
           kvpi_why_element(why, "memories", group, ".block_tokens", layout->block_tokens, S, S) ||
           kvpi_why_element(why, "memories", group, ".n_blocks", layout->n_blocks, n_blocks,
                            INT32_MAX);
}

/* Fill in the groups; KVP_E_ARG: `why` says which is wrong. */
static kvp_status add_groups(struct kvpi_side *side, kvp_why *why)
{
    const kvp_transfer_config *config = &side->config;
    kvp_config cache;
    uint64_t n_cells = 0;
    if (kvpi_why_if(why, kvp_cache_config_get(config->cache, &cache) != KVP_OK, "cache", NULL,
                    "is none of this process") ||
        kvpi_why_if(why, config->memory && config->memories, "memory", NULL,
                    "must be NULL beside memories") ||
        kvpi_why_if(why, cache.n_groups + (cache.state_slots > 0) > 1 && !config->memories,
                    "memories", NULL, "is NULL, and the cache has several layer groups"))
        return KVP_E_ARG;
    side->n_kv_groups = cache.n_groups;
    side->shape.n_groups = cache.n_groups + (cache.state_slots > 0);
    for (uint32_t g = 0; g < side->shape.n_groups; g++) {
        const kvp_memory *memory = config->memories ? config->memories[g] : config->memory;
        kvp_layout layout;
        if (memory_wrong(memory, &cache, g, &layout, why))
            return KVP_E_ARG;
        const int is_state = g == cache.n_groups;
        const kvp_group *group = &cache.groups[g]; /* behind the last one, all zero */
        side->shape.groups[g] =
            side_group_of(&layout, (kvp_window){group->sink_tokens, group->recent_tokens});
        side->shape.groups[g].flags |= is_state ? KVPI_SHAPE_STATE : 0u;
        side->groups[g] = (struct kvpi_side_group){memory, side->n_layers, (uint32_t)n_cells};
        side->n_layers += layout.n_layers;
        side->n_kv_layers += is_state ? 0 : layout.n_layers;
        n_cells += (uint64_t)layout.n_layers * layout.n_heads;
    }
    side->n_cells = (uint32_t)n_cells;
    return KVP_OK; /* 8 groups x 1,024 layers x 65,536 heads are below 2^32 */
}

/* Check a configuration, and make a side of it. */
static kvp_status make_side(const kvp_transfer_config *config, struct kvpi_side *side, kvp_why *why)
{
    const kvp_transfer_config *known = kvpi_sized(config, sizeof(*config));
    if (kvpi_why_missing(why, config, known, "config") || fields_wrong(known, why))
        return KVP_E_ARG;
    *side = (struct kvpi_side){
        .config = *known,
        .shape = {.model_version = known->model_version,
                  .model = kvpi_transfer_hash(known->model, known->model_bytes)}};
    return add_groups(side, why);
}

kvp_status kvpi_side_init(struct kvpi_side *side, const kvp_transfer_config *config)
{
    const kvp_status status = make_side(config, side, NULL);
    if (status == KVP_OK) {
        side->config.model = NULL;
        side->config.memories = NULL;
    }
    return status;
}

kvp_status kvp_transfer_config_check(const kvp_transfer_config *config, kvp_why *out_why)
{
    struct kvpi_side side;
    kvpi_why_clear(out_why);
    return make_side(config, &side, out_why);
}

kvp_status kvpi_side_dropped(const struct kvpi_side *side, kvp_seq seq, uint32_t group,
                             kvp_range *out_dropped)
{
    const uint32_t S = kvpi_shape_block_tokens(&side->shape, group);
    kvp_window_info info;
    const kvp_status status = kvp_seq_window_get(side->config.cache, seq, group, &info);
    if (status == KVP_OK)
        *out_dropped = (kvp_range){info.dropped_begin * S, info.dropped_end * S};
    return status;
}

/* Does the query at `at` see a token that lies before `end`, and behind the sinks? */
static int sees_before(kvp_window window, uint64_t at, uint64_t end)
{
    if (window.sink_tokens == KVP_CHUNKED)
        return end > at - at % window.recent_tokens;
    return end + window.recent_tokens > at + 1;
}

kvp_status kvpi_side_gaps(const struct kvpi_side *side, const struct kvpi_transfer *t,
                          kvp_range *out_gaps)
{
    for (uint32_t g = 0; g < side->n_kv_groups; g++) {
        kvp_window_info info;
        kvp_range dropped;
        kvp_status status = kvpi_side_dropped(side, t->seq, g, &dropped);
        if (status == KVP_OK)
            status = kvp_seq_window_get(side->config.cache, t->seq, g, &info);
        if (status != KVP_OK)
            return status;
        if (dropped.begin < dropped.end && sees_before(info.window, t->end, dropped.end))
            return KVP_E_DROPPED;
        dropped.begin = dropped.begin > t->begin ? dropped.begin : t->begin;
        dropped.end = dropped.end < t->end ? dropped.end : t->end;
        out_gaps[g] = dropped.begin < dropped.end ? dropped : (kvp_range){0, 0};
    }
    return KVP_OK;
}

kvp_status kvpi_side_slot(const struct kvpi_side *side, kvp_seq seq, int32_t *out_slot)
{
    kvp_state_info state;
    *out_slot = 0;
    if (!kvpi_side_has_state(side))
        return KVP_OK;
    const kvp_status status = kvp_seq_state_get(side->config.cache, seq, &state);
    if (status != KVP_OK)
        return status;
    *out_slot = (int32_t)state.write_slot;
    const int is_free = state.write_slot != 0 && state.write_slot != state.read_slot &&
                        state.ring_slots == 0 && /* else a commit may go on with another slot */
                        state.read_slot == state.computed_slot; /* else steps have gone on */
    return is_free ? KVP_OK : KVP_E_STATE;
}

static int is_link(const kvp_link *link)
{
    return link && link->lend && link->post && link->take && link->give_back && link->progress &&
           link->max_message >= KVP_LINK_MESSAGE_MIN && link->max_message <= INT32_MAX;
}

kvp_status kvpi_side_attach(struct kvpi_side *side, const kvp_link *link, uint32_t *out_link)
{
    link = kvpi_sized(link, sizeof(*link));
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

typedef void (*seal_fn)(uint8_t *message, size_t n_bytes, const struct kvpi_transfer_head *head);

static kvp_status post_sealed(struct kvpi_side *side, uint32_t link, size_t n_bytes,
                              const struct kvpi_transfer_head *head, seal_fn seal)
{
    struct kvpi_side_link *l = &side->links[link];
    uint8_t *message;
    kvp_status status = kvpi_side_lend(side, link, n_bytes, &message); /* the same one again */
    if (status != KVP_OK)
        return status;
    seal(message, n_bytes, head);
    status = l->link.post(l->link.context, n_bytes);
    if (status != KVP_OK)
        kvpi_side_break(side, link, status);
    return status;
}

kvp_status kvpi_side_post(struct kvpi_side *side, uint32_t link, size_t n_bytes,
                          const struct kvpi_transfer_head *head)
{
    return post_sealed(side, link, n_bytes, head, kvpi_transfer_seal);
}

kvp_status kvpi_side_post_summed(struct kvpi_side *side, uint32_t link, size_t n_bytes,
                                 const struct kvpi_transfer_head *head)
{
    return post_sealed(side, link, n_bytes, head, kvpi_transfer_put_head);
}

_Static_assert(KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_BEGIN_BYTES(KVP_GROUPS_MAX) <=
                   KVPI_FRONT_BYTES,
               "the largest message without KV is all front");

kvp_status kvpi_side_take(const struct kvpi_side *side, uint32_t link, struct kvpi_message *message)
{
    const kvp_link *l = &side->links[link].link;
    const void *bytes;
    const kvp_status status = l->take(l->context, &bytes, &message->n_bytes);
    if (status != KVP_OK)
        return status;
    const int is_all = message->n_bytes <= sizeof message->front;
    memcpy(message->front, bytes, is_all ? message->n_bytes : sizeof message->front);
    __atomic_signal_fence(__ATOMIC_ACQ_REL); /* the compiler reads no byte of it again */
    message->bytes = is_all ? message->front : bytes;
    return KVP_OK;
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
