/* tell: from events of a cache to what the wire says. units.h has the invariants.
 *
 * On the device a reader forgets what is behind a removed unit, so told units are a tree there:
 * what is behind a unit goes before it, and comes again with it. In the other tiers each unit
 * stands for itself, because its beginning may be on the device.
 */
#include "publish/publisher_state.h"

#include <kvpager/hash.h>
#include <string.h>

#define DEVICE_BIT (1u << KVP_DEVICE)

static void leave_room(kvp_publisher *p)
{
    if (kvpi_out_is_full(&p->live)) {
        kvpi_publish_batch(p);
    }
}

const char *kvpi_tell_lora(const kvp_publisher *p, const struct kvpi_unit *unit)
{
    if (p->n_spaces == 0 || p->spaces[unit->space].lora[0] == '\0') {
        return NULL;
    }
    return p->spaces[unit->space].lora;
}

/* --------------------------------------------------------------------------- units and removals */

static void tell_unit(kvp_publisher *p, uint32_t slot, uint32_t tier)
{
    struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
    leave_room(p);
    unit->told = (uint8_t)(unit->told | 1u << tier);
    kvpi_out_stored(&p->live, &p->set, slot, tier, kvpi_tell_lora(p, unit));
    p->stats.stored++;
}

static void tell_removal(kvp_publisher *p, uint32_t slot, uint32_t tier)
{
    struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
    leave_room(p);
    unit->told = (uint8_t)(unit->told & ~(1u << tier));
    kvpi_out_removed(&p->live, unit->wire, tier);
    p->stats.removed++;
}

/* May a unit be told in a tier that it is in? */
static int is_fit(const kvp_publisher *p, const struct kvpi_unit *unit, uint32_t tier)
{
    const struct kvpi_unit *before = kvpi_unit_at(&p->set, unit->before);
    return (unit->flags & KVPI_UNIT_ROOTED) && (unit->tiers >> tier & 1) &&
           (tier != KVP_DEVICE || (before->flags & KVPI_UNIT_ROOT) || (before->told & DEVICE_BIT));
}

/* Tell what may be told now of a unit and of all behind it. A unit that cannot be told on the
 * device hides there what is behind it. */
static void tell_units(kvp_publisher *p, uint32_t top, uint32_t tier)
{
    int skip;
    for (uint32_t slot = top; slot != KVPI_NO_UNIT;
         slot = kvpi_units_next(&p->set, top, slot, skip)) {
        const struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
        const int is_told = unit->told >> tier & 1;
        const int fits = is_fit(p, unit, tier);
        skip = tier == KVP_DEVICE ? !fits || is_told : !(unit->flags & KVPI_UNIT_ROOTED);
        if (fits && !is_told) {
            tell_unit(p, slot, tier);
        }
    }
}

/* The first of these siblings that is told in the tier, or any where bit is 0. */
static uint32_t first_told(const struct kvpi_units *set, uint32_t slot, unsigned bit)
{
    while (slot != KVPI_NO_UNIT && bit != 0 && !(kvpi_unit_at(set, slot)->told & bit)) {
        slot = kvpi_unit_at(set, slot)->next;
    }
    return slot;
}

static uint32_t deepest(const struct kvpi_units *set, uint32_t slot, unsigned bit)
{
    uint32_t child;
    while ((child = first_told(set, kvpi_unit_at(set, slot)->first_child, bit)) != KVPI_NO_UNIT) {
        slot = child;
    }
    return slot;
}

/* The slot after `slot` when what is behind a unit comes before it; KVPI_NO_UNIT after top. With a
 * bit, only what can be reached through units that are told there. */
static uint32_t next_up(const struct kvpi_units *set, uint32_t top, uint32_t slot, unsigned bit)
{
    if (slot == top) {
        return KVPI_NO_UNIT;
    }
    const uint32_t sibling = first_told(set, kvpi_unit_at(set, slot)->next, bit);
    return sibling != KVPI_NO_UNIT ? deepest(set, sibling, bit) : kvpi_unit_at(set, slot)->before;
}

/* Withdraw what is told in a tier of a unit and of all behind it, the last units first. */
static void tell_removals(kvp_publisher *p, uint32_t top, uint32_t tier)
{
    const unsigned bit = tier == KVP_DEVICE ? DEVICE_BIT : 0;
    for (uint32_t slot = deepest(&p->set, top, bit); slot != KVPI_NO_UNIT;) {
        const uint32_t next = next_up(&p->set, top, slot, bit);
        if (kvpi_unit_at(&p->set, slot)->told >> tier & 1) {
            tell_removal(p, slot, tier);
        }
        slot = next;
    }
}

/* --------------------------------------------------------------------------------------- stored */

/* Give a unit that is rooted its name on the wire. */
static int name_unit(kvp_publisher *p, uint32_t slot)
{
    struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
    if (p->hashes == KVP_PUBLISH_OWN) {
        unit->wire = kvpi_wire_number(unit->hash.bytes, sizeof(unit->hash.bytes));
        return 1;
    }
    const struct kvpi_unit *before = kvpi_unit_at(&p->set, unit->before);
    const uint8_t *from = before->flags & KVPI_UNIT_ROOT
                              ? p->formula.root
                              : p->set.digests + (size_t)unit->before * 32;
    uint8_t *digest = p->set.digests + (size_t)slot * 32;
    if (kvpi_formula_block(&p->formula, from, kvpi_unit_tokens(&p->set, slot), p->unit_tokens,
                           digest) != KVP_OK) {
        return 0;
    }
    unit->wire = kvpi_wire_number(digest, 32);
    return 1;
}

/* A unit became known: it and what is behind it may be rooted now. */
static void root_from(kvp_publisher *p, uint32_t top)
{
    int skip;
    for (uint32_t slot = top; slot != KVPI_NO_UNIT;
         slot = kvpi_units_next(&p->set, top, slot, skip)) {
        struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
        const unsigned before = kvpi_unit_at(&p->set, unit->before)->flags;
        skip = !(unit->flags & KVPI_UNIT_KNOWN) || (unit->flags & KVPI_UNIT_SEPARATE) ||
               !(before & (KVPI_UNIT_ROOTED | KVPI_UNIT_ROOT)) || !name_unit(p, slot);
        if (!skip) {
            unit->flags |= KVPI_UNIT_ROOTED;
        }
    }
}

/* Is the unit's hash another than its tokens give behind the unit before, or can the wire not carry
 * its tokens? */
static int is_separate(const kvp_publisher *p, const kvp_event *event, const int32_t *tokens)
{
    const kvp_hash_input input = {.unit_tokens = p->unit_tokens,
                                  .n_tokens = p->unit_tokens,
                                  .tokens = tokens,
                                  .first_position = event->position};
    kvp_hash hash;
    for (uint32_t i = 0; i < p->unit_tokens; i++) {
        if (tokens[i] < 0) {
            return 1;
        }
    }
    return !p->foreign && (kvp_hash_units(&input, &event->parent, &hash) != KVP_OK ||
                           memcmp(&hash, &event->hash, sizeof(hash)) != 0);
}

static uint32_t find_or_add(kvp_publisher *p, const kvp_hash *hash, uint32_t before)
{
    const uint32_t slot = kvpi_units_find(&p->set, hash);
    return slot != KVPI_NO_UNIT ? slot : kvpi_units_add(&p->set, hash, before);
}

/* The root's slot; KVPI_NO_UNIT: there is no room. */
static uint32_t find_root(kvp_publisher *p, const kvp_hash *hash, uint32_t space)
{
    const uint32_t slot = find_or_add(p, hash, KVPI_NO_UNIT);
    if (slot != KVPI_NO_UNIT) {
        kvpi_unit_at(&p->set, slot)->flags |= KVPI_UNIT_ROOT;
        kvpi_unit_at(&p->set, slot)->space = space;
    }
    return slot;
}

/* Is `slot` among those before `from`? Hashes of others may make a circle. */
static int is_before(const struct kvpi_units *set, uint32_t slot, uint32_t from)
{
    while (from != KVPI_NO_UNIT && from != slot) {
        from = kvpi_unit_at(set, from)->before;
    }
    return from == slot;
}

/* Free what was made for a unit and is not needed. */
static void prune_hash(kvp_publisher *p, const kvp_hash *hash)
{
    const uint32_t slot = kvpi_units_find(&p->set, hash);
    if (slot != KVPI_NO_UNIT) {
        (void)kvpi_units_prune(&p->set, slot);
    }
}

/* A place that was a hash alone becomes the unit. */
static void fill_place(kvp_publisher *p, uint32_t slot, uint32_t before, const kvp_event *event,
                       const int32_t *tokens)
{
    struct kvpi_units *set = &p->set;
    struct kvpi_unit *unit = kvpi_unit_at(set, slot);
    unit->flags |= KVPI_UNIT_KNOWN;
    memcpy(kvpi_unit_tokens(set, slot), tokens, p->unit_tokens * sizeof(int32_t));
    if (is_separate(p, event, tokens) || (unit->before != before && is_before(set, slot, before))) {
        unit->flags |= KVPI_UNIT_SEPARATE;
        p->stats.separate_units++;
    } else if (unit->before != before) {
        kvpi_units_move(set, slot, before);
    }
    root_from(p, slot);
}

/* The slot of a unit that is stored in a tier, known from now on; KVPI_NO_UNIT: there is no room
 * for it and those before it. */
static uint32_t know(kvp_publisher *p, const kvp_event *event, const int32_t *tokens,
                     uint32_t space)
{
    const uint32_t root = find_root(p, &event->root, space);
    const uint32_t before =
        event->position == 0 || root == KVPI_NO_UNIT ? root : find_or_add(p, &event->parent, root);
    uint32_t slot = KVPI_NO_UNIT;
    if (before != KVPI_NO_UNIT) {
        slot = find_or_add(p, &event->hash, before);
    }
    if (slot != KVPI_NO_UNIT && (kvpi_unit_at(&p->set, slot)->flags & KVPI_UNIT_ROOT)) {
        slot = KVPI_NO_UNIT;
    }
    if (slot != KVPI_NO_UNIT) {
        struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
        unit->tiers = (uint8_t)(unit->tiers | 1u << event->tier);
        if (!(unit->flags & KVPI_UNIT_KNOWN)) {
            unit->space = space;
            fill_place(p, slot, before, event, tokens);
        }
    }
    prune_hash(p, &event->parent);
    prune_hash(p, &event->root);
    return slot;
}

/* The place of a root in `spaces`; -1: it is not told. */
static int find_space(const kvp_publisher *p, const kvp_hash *root)
{
    for (uint32_t i = 0; i < p->n_spaces; i++) {
        if (memcmp(&p->spaces[i].root, root, sizeof(*root)) == 0) {
            return (int)i;
        }
    }
    return p->n_spaces == 0 ? 0 : -1;
}

/* A unit that is rooted came to a tier: only on the device it lets others be told. */
static void tell_arrival(kvp_publisher *p, uint32_t slot, uint32_t tier)
{
    if (tier == KVP_DEVICE) {
        tell_units(p, slot, tier);
    } else if (!(kvpi_unit_at(&p->set, slot)->told >> tier & 1)) {
        tell_unit(p, slot, tier);
    }
}

static void tell_stored(kvp_publisher *p, const kvp_event *event, const int32_t *tokens)
{
    const int space = find_space(p, &event->root);
    if (space < 0) {
        return;
    }
    const uint32_t found = kvpi_units_find(&p->set, &event->hash);
    const unsigned flags = found != KVPI_NO_UNIT ? kvpi_unit_at(&p->set, found)->flags : 0;
    const uint32_t slot = know(p, event, tokens, (uint32_t)space);
    if (slot == KVPI_NO_UNIT) {
        p->stats.dropped_units++;
    } else if (flags & KVPI_UNIT_ROOTED) {
        tell_arrival(p, slot, event->tier);
    } else {
        for (uint32_t tier = 0; tier < KVPI_PUBLISH_TIERS; tier++) {
            tell_units(p, slot, tier);
        }
    }
}

/* ----------------------------------------------------------------------------- removed, cleared */

void kvpi_tell_gone(kvp_publisher *p, uint32_t slot, uint32_t tier)
{
    struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
    if (!(unit->tiers >> tier & 1)) {
        return;
    }
    unit->tiers = (uint8_t)(unit->tiers & ~(1u << tier));
    if (unit->told >> tier & 1) {
        if (tier == KVP_DEVICE) {
            tell_removals(p, slot, tier);
        } else {
            tell_removal(p, slot, tier);
        }
    }
    (void)kvpi_units_prune(&p->set, slot);
}

static void clear_space(kvp_publisher *p, uint32_t root)
{
    for (uint32_t tier = 0; tier < KVPI_PUBLISH_TIERS; tier++) {
        tell_removals(p, root, tier);
    }
    for (uint32_t slot = root; slot != KVPI_NO_UNIT;
         slot = kvpi_units_next(&p->set, root, slot, 0)) {
        kvpi_unit_at(&p->set, slot)->tiers = 0;
    }
    for (uint32_t slot = root; slot != KVPI_NO_UNIT;) {
        slot = kvpi_units_prune(&p->set, deepest(&p->set, slot, 0));
    }
}

static void tell_cleared(kvp_publisher *p, const kvp_event *event)
{
    static const kvp_hash all;
    if (memcmp(&event->hash, &all, sizeof(all)) == 0) {
        leave_room(p);
        kvpi_out_cleared(&p->live);
        kvpi_units_reset(&p->set);
        p->stats.cleared++;
        return;
    }
    const uint32_t root = kvpi_units_find(&p->set, &event->hash);
    if (root != KVPI_NO_UNIT && (kvpi_unit_at(&p->set, root)->flags & KVPI_UNIT_ROOT)) {
        clear_space(p, root);
    }
}

void kvpi_tell(kvp_publisher *p, const kvp_event *event, const int32_t *tokens)
{
    if (event->kind == KVP_EVENT_CLEARED) {
        tell_cleared(p, event);
    } else if (event->group == p->group && event->kind == KVP_EVENT_STORED) {
        tell_stored(p, event, tokens);
    } else if (event->group == p->group) {
        const uint32_t slot = kvpi_units_find(&p->set, &event->hash);
        if (slot != KVPI_NO_UNIT) {
            kvpi_tell_gone(p, slot, event->tier);
        }
    }
}

int kvpi_event_is_wrong(const kvp_publisher *p, const kvp_event *event)
{
    if (event->kind == KVP_EVENT_CLEARED) {
        return 0;
    }
    if (event->tier >= KVPI_PUBLISH_TIERS) {
        return 1;
    }
    return event->kind != KVP_EVENT_REMOVED &&
           (event->kind != KVP_EVENT_STORED || event->n_tokens != p->unit_tokens ||
            event->position % p->unit_tokens != 0 ||
            memcmp(&event->hash, &event->parent, sizeof(event->hash)) == 0 ||
            memcmp(&event->hash, &event->root, sizeof(event->hash)) == 0);
}
