/* See recent.h. */
#include "tool/recording/recent.h"

#include <stdlib.h>
#include <string.h>

#define MIN_PLACES 1024u

/* Engines' hashes are equally distributed; those of tests, or of an attacker, need not be. */
static uint64_t mix(uint64_t hash)
{
    hash = (hash ^ hash >> 32) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Where it is, or would be. */
static kvpi_known *place_of(const kvpi_recent_table *table, const kvpi_known *name, bool is_wide)
{
    const size_t mask = table->n_places - 1;
    size_t at = (size_t)mix(name->hash) & mask;
    while (table->of[at].number != 0 &&
           (table->of[at].hash != name->hash || (is_wide && table->of[at].rest != name->rest)))
        at = (at + 1) & mask;
    return &table->of[at];
}

static kvpi_known *find_in(const kvpi_recent_table *table, const kvpi_known *name, bool is_wide)
{
    kvpi_known *found = table->n == 0 ? NULL : place_of(table, name, is_wide);
    return found == NULL || found->number == 0 ? NULL : found;
}

static bool grow(kvpi_recent_table *table, bool is_wide)
{
    kvpi_recent_table grown = {.n_places = table->n_places == 0 ? MIN_PLACES : 2 * table->n_places,
                               .n = table->n};
    grown.of = calloc(grown.n_places, sizeof *grown.of);
    if (grown.of == NULL)
        return false;
    for (size_t i = 0; i < table->n_places; i++)
        if (table->of[i].number != 0)
            *place_of(&grown, &table->of[i], is_wide) = table->of[i];
    free(table->of);
    *table = grown;
    return true;
}

/* Room for one more name in the newer table. */
static bool make_room(kvpi_recent *recent)
{
    if (recent->newer.n >= recent->max) {
        kvpi_recent_table empty = recent->older;
        recent->forgotten += empty.n - recent->moved;
        recent->moved = 0;
        recent->older = recent->newer;
        empty.n = 0;
        if (empty.of != NULL)
            memset(empty.of, 0, empty.n_places * sizeof *empty.of);
        recent->newer = empty;
    }
    return 2 * recent->newer.n < recent->newer.n_places || grow(&recent->newer, recent->is_wide);
}

/* Into the newer table, from the older one or afresh: the older may be dropped, hence by value. */
static kvpi_known *put(kvpi_recent *recent, kvpi_known of, bool is_known)
{
    recent->moved += is_known;
    if (!make_room(recent)) {
        recent->moved -= is_known;
        return NULL;
    }
    kvpi_known *place = place_of(&recent->newer, &of, recent->is_wide);
    *place = of;
    recent->newer.n++;
    return place;
}

kvpi_known *kvpi_recent_find(kvpi_recent *recent, uint64_t hash)
{
    const kvpi_known name = {.hash = hash};
    kvpi_known *found = find_in(&recent->newer, &name, false);
    if (found != NULL)
        return found;
    found = find_in(&recent->older, &name, false);
    return found == NULL ? NULL : put(recent, *found, true);
}

kvpi_known *kvpi_recent_get(kvpi_recent *recent, const kvpi_known *fresh)
{
    kvpi_known *found = find_in(&recent->newer, fresh, recent->is_wide);
    if (found != NULL)
        return found;
    found = find_in(&recent->older, fresh, recent->is_wide);
    return put(recent, found == NULL ? *fresh : *found, found != NULL);
}

bool kvpi_recent_number(kvpi_recent *recent, const uint8_t name[16], uint64_t *out)
{
    kvpi_known fresh = {.number = recent->next + 1};
    memcpy(&fresh.hash, name, sizeof fresh.hash);
    memcpy(&fresh.rest, name + sizeof fresh.hash, sizeof fresh.rest);
    const kvpi_known *found = kvpi_recent_get(recent, &fresh);
    if (found == NULL)
        return false;
    recent->next += found->number == fresh.number;
    *out = found->number - 1;
    return true;
}

kvpi_known *kvpi_recent_next(kvpi_recent *recent, size_t *at)
{
    for (;;) {
        const size_t i = (*at)++;
        const bool is_newer = i < recent->newer.n_places;
        if (i >= recent->newer.n_places + recent->older.n_places)
            return NULL;
        kvpi_known *of =
            is_newer ? &recent->newer.of[i] : &recent->older.of[i - recent->newer.n_places];
        if (of->number != 0 && (is_newer || find_in(&recent->newer, of, recent->is_wide) == NULL))
            return of;
    }
}

void kvpi_recent_free(kvpi_recent *recent)
{
    free(recent->newer.of);
    free(recent->older.of);
    recent->newer = recent->older = (kvpi_recent_table){0};
}
