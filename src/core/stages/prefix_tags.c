/* prefix_tags: see prefix_tags.h for the lines, and I1. */
#include "core/stages/prefix_tags.h"

#include <string.h>

_Static_assert(sizeof(struct kvpi_tags_line) == KVPI_CACHE_LINE, "a line is a cache line");

void kvpi_tags_layout(struct kvpi_tags *tags, struct kvpi_layout *layout, size_t self,
                      uint32_t n_nodes)
{
    /* 96 nodes to 19 lines: half of the places are empty. Below 2^32: nodes are below 2^31. */
    tags->n_lines = (uint32_t)((uint64_t)n_nodes * 19 / 96) + 1;
    tags->lines_at = kvpi_layout_take(layout, tags->n_lines, sizeof(struct kvpi_tags_line)) - self;
}

void kvpi_tags_reset(struct kvpi_tags *tags)
{
    memset(kvpi_tags_line(tags, 0), 0, tags->n_lines * sizeof(struct kvpi_tags_line));
}

/* The first line behind a full one that is not full; those on the way count the entry. */
__attribute__((noinline)) static struct kvpi_tags_line *pass_full(struct kvpi_tags *tags,
                                                                  uint32_t home)
{
    struct kvpi_tags_line *line = kvpi_tags_line(tags, home);
    for (uint32_t i = home; kvpi_tags_places(line, 0) == 0;) {
        line->n_beyond++;
        i = kvpi_tags_after(tags, i);
        line = kvpi_tags_line(tags, i);
    }
    return line;
}

void kvpi_tags_add(struct kvpi_tags *tags, uint32_t tag, uint32_t node)
{
    const uint32_t home = kvpi_tags_home(tags, tag);
    struct kvpi_tags_line *line = kvpi_tags_line(tags, home);
    uint64_t empty = kvpi_tags_places(line, 0);
    if (kvpi_unlikely(empty == 0)) {
        line = pass_full(tags, home);
        empty = kvpi_tags_places(line, 0);
    }
    const uint32_t place = kvpi_tags_first(empty);
    line->mark[place] = kvpi_tags_mark(tag);
    line->node[place] = node;
}

/* The place of a node in a line; KVPI_TAGS_PLACES: it is not there. */
static inline uint32_t place_of(const struct kvpi_tags_line *line, uint16_t mark, uint32_t node)
{
    for (uint64_t places = kvpi_tags_places(line, mark); places != 0; places &= places - 1) {
        const uint32_t place = kvpi_tags_first(places);
        if (line->node[place] == node) {
            return place;
        }
    }
    return KVPI_TAGS_PLACES;
}

/* The line that has the node, which its home has not; those on the way count one less. */
__attribute__((noinline)) static struct kvpi_tags_line *unpass(struct kvpi_tags *tags, uint32_t tag,
                                                               uint32_t node)
{
    const uint16_t mark = kvpi_tags_mark(tag);
    uint32_t i = kvpi_tags_home(tags, tag);
    struct kvpi_tags_line *line = kvpi_tags_line(tags, i);
    while (place_of(line, mark, node) == KVPI_TAGS_PLACES) {
        KVPI_ASSERT(line->n_beyond > 0);
        line->n_beyond--;
        i = kvpi_tags_after(tags, i);
        line = kvpi_tags_line(tags, i);
    }
    return line;
}

void kvpi_tags_remove(struct kvpi_tags *tags, uint32_t tag, uint32_t node)
{
    const uint16_t mark = kvpi_tags_mark(tag);
    struct kvpi_tags_line *line = kvpi_tags_line(tags, kvpi_tags_home(tags, tag));
    uint32_t place = place_of(line, mark, node);
    if (kvpi_unlikely(place == KVPI_TAGS_PLACES)) {
        line = unpass(tags, tag, node);
        place = place_of(line, mark, node);
    }
    line->mark[place] = 0;
    line->node[place] = 0;
}

void kvpi_tags_pass(struct kvpi_tags *tags, uint32_t tag, uint32_t line, uint32_t by)
{
    for (uint32_t i = kvpi_tags_home(tags, tag); i != line; i = kvpi_tags_after(tags, i)) {
        kvpi_tags_line(tags, i)->n_beyond += by;
    }
}
