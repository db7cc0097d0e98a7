/* resync: the set that a cache has now against the one that was told. What is in no tier any more
 * goes first; then everything is stored, and what was told already says nothing. */
#include "publish/publisher_state.h"

#include <stdlib.h>

struct snapshot {
    kvp_event *events;
    int32_t *tokens;
    uint32_t n;
    uint64_t number;
};

static void free_snapshot(const struct snapshot *snapshot)
{
    free(snapshot->events);
    free(snapshot->tokens);
}

static kvp_status take_snapshot(kvp_cache *cache, uint32_t unit_tokens, struct snapshot *s)
{
    kvp_status status = kvp_events_snapshot(cache, NULL, 0, NULL, &s->n, &s->number);
    if (status != KVP_OK || s->n == 0) {
        return status;
    }
    s->events = calloc(s->n, sizeof(*s->events));
    s->tokens = calloc((size_t)s->n * unit_tokens, sizeof(*s->tokens));
    if (s->events == NULL || s->tokens == NULL) {
        return KVP_E_NO_MEMORY;
    }
    return kvp_events_snapshot(cache, s->events, s->n, s->tokens, &s->n, &s->number);
}

static unsigned seen_bit(uint32_t tier)
{
    return (unsigned)KVPI_UNIT_SEEN << tier;
}

static void mark_seen(kvp_publisher *p, const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t slot = kvpi_units_find(&p->set, &s->events[i].hash);
        if (slot != KVPI_NO_UNIT && s->events[i].group == p->group) {
            struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
            unit->flags = (uint8_t)(unit->flags | seen_bit(s->events[i].tier));
        }
    }
}

/* A unit that is freed takes only slots with it that have no tier. Slots keep their places. */
static void drop_unseen(kvp_publisher *p)
{
    for (uint32_t slot = 1; slot < p->set.capacity; slot++) {
        struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
        for (uint32_t tier = KVP_DEVICE; tier <= KVP_HOST && unit->stamp != 0; tier++) {
            if (!(unit->flags & seen_bit(tier))) {
                kvpi_tell_gone(p, slot, tier);
            }
        }
        unit->flags = (uint8_t)(unit->flags & (KVPI_UNIT_SEEN - 1));
    }
}

kvp_status kvp_publisher_resync(kvp_publisher *p, kvp_cache *cache, uint64_t now_ns)
{
    kvp_config config;
    struct snapshot s = {NULL, NULL, 0, 0};
    if (p == NULL || cache == NULL || kvp_cache_config_peek(cache, &config) != KVP_OK ||
        config.unit_tokens != p->unit_tokens) {
        return KVP_E_ARG;
    }
    const kvp_status status = take_snapshot(cache, p->unit_tokens, &s);
    if (status == KVP_OK) {
        p->now_ns = now_ns;
        mark_seen(p, &s);
        drop_unseen(p);
        for (uint32_t i = 0; i < s.n; i++) {
            kvpi_tell(p, &s.events[i], s.tokens + (size_t)i * p->unit_tokens);
        }
        p->next_event = s.number + 1;
        if (!kvpi_out_is_empty(&p->live)) {
            kvpi_publish_batch(p);
        }
    }
    free_snapshot(&s);
    return status;
}
