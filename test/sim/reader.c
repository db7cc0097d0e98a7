/* A reader of events: its set must be the cache's. See sim.h. */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_AT_ONCE = 7 };

static uint32_t find_unit(const sim_reader *reader, const kvp_event *event)
{
    uint32_t i = 0;
    while (i < reader->n &&
           (memcmp(&reader->units[i].hash, &event->hash, sizeof event->hash) != 0 ||
            reader->units[i].tier != event->tier || reader->units[i].group != event->group))
        i++;
    return i;
}

static void clear_root(sim_reader *reader, const kvp_hash *root)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < reader->n; i++)
        if (memcmp(&reader->units[i].root, root, sizeof *root) != 0)
            reader->units[n++] = reader->units[i];
    reader->n = n;
}

static void take_event(sim *s, const kvp_event *event)
{
    sim_reader *reader = &s->reader;
    if (event->kind == KVP_EVENT_CLEARED) {
        clear_root(reader, &event->hash);
        return;
    }
    const uint32_t at = find_unit(reader, event);
    const bool is_there = at < reader->n;
    if (is_there != (event->kind == KVP_EVENT_REMOVED) || reader->n == reader->n_max) {
        verdict_bad(&s->verdict, "event %" PRIu64 " changes nothing, or there are too many",
                    event->number);
    } else if (is_there) {
        reader->units[at] = reader->units[--reader->n];
    } else {
        reader->units[reader->n++] =
            (sim_unit){event->hash, event->root, event->tier, event->group};
    }
}

/* Begin anew, with the whole set. */
static void list_all(sim *s)
{
    sim_reader *reader = &s->reader;
    uint32_t n = 0;
    uint64_t newest = 0;
    reader->n = 0;
    if (!sim_ok(s, "kvp_events_snapshot",
                kvp_events_snapshot(s->cache, reader->events, reader->n_max, NULL, &n, &newest)))
        return;
    for (uint32_t i = 0; i < n; i++)
        take_event(s, &reader->events[i]);
    reader->next = newest + 1;
}

void sim_reader_begin(sim *s)
{
    sim_reader *reader = &s->reader;
    const uint32_t units = s->memory.S / s->config.unit_tokens;
    reader->n_max = (s->config.n_blocks + s->config.host_blocks) * units + s->config.state_slots +
                    s->config.host_state_slots + 1;
    reader->units = random_allocate(reader->n_max, sizeof *reader->units);
    reader->events = random_allocate(reader->n_max, sizeof *reader->events);
    list_all(s);
}

void sim_reader_end(sim *s)
{
    free(s->reader.units);
    free(s->reader.events);
}

void sim_read(sim *s)
{
    kvp_event events[EVENTS_AT_ONCE];
    uint32_t n = EVENTS_AT_ONCE;
    while (n == EVENTS_AT_ONCE && !s->verdict.is_bad) {
        const kvp_status status =
            kvp_events_read(s->cache, s->reader.next, events, EVENTS_AT_ONCE, NULL, &n);
        if (status == KVP_E_BEHIND) {
            s->seen[SIM_behind]++;
            list_all(s);
            return;
        }
        if (!sim_ok(s, "kvp_events_read", status))
            return;
        for (uint32_t i = 0; i < n; i++)
            take_event(s, &events[i]);
        s->reader.next += n;
    }
}

void sim_compare(sim *s)
{
    sim_reader *reader = &s->reader;
    uint32_t n = 0;
    uint64_t newest = 0;
    sim_read(s);
    if (s->verdict.is_bad ||
        !sim_ok(s, "kvp_events_snapshot",
                kvp_events_snapshot(s->cache, reader->events, reader->n_max, NULL, &n, &newest)))
        return;
    bool same = n == reader->n && newest + 1 == reader->next;
    for (uint32_t i = 0; i < n && same; i++)
        same = find_unit(reader, &reader->events[i]) < reader->n;
    if (!same) {
        verdict_bad(&s->verdict,
                    "a reader has %" PRIu32 " units up to event %" PRIu64 ", the cache %" PRIu32
                    " up to %" PRIu64,
                    reader->n, reader->next - 1, n, newest);
    }
    s->seen[SIM_sets_compared]++;
}
