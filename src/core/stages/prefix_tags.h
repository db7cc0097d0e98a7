/* prefix_tags: the index of public nodes, by the tag of their hash. A table of cache lines.
 *
 * An entry is a node and a mark: 16 bits of the 32-bit tag, never 0. Its home is the line that the
 * tag names. If that line is full, the entry lies in the first line behind it that is not, and each
 * line that was passed over counts it:
 *
 *   |mark [10] u16|n_beyond u32|node [10] u32|     64 bytes, one cache line
 *
 *   a place is empty  <=>  its mark is 0  <=>  its node is 0
 *   n_beyond          ==   entries that lie behind this line, with a home here or before     (I1)
 *
 * So a search ends at the first line that counts none, and a removal moves nothing. With two places
 * for each node, three lines in a hundred are full: nearly every search, addition and removal reads
 * one line, the one that was asked for ahead.
 *
 * Refuses nothing: there are more places than nodes.
 */
#ifndef KVPI_PREFIX_TAGS_H
#define KVPI_PREFIX_TAGS_H

#include "base/base.h"

#define KVPI_TAGS_PLACES 10u

struct kvpi_tags_line {
    uint16_t mark[KVPI_TAGS_PLACES];
    uint32_t n_beyond;
    uint32_t node[KVPI_TAGS_PLACES];
};

struct kvpi_tags {
    uint32_t n_lines;
    size_t lines_at; /* struct kvpi_tags_line [n_lines] */
};

static inline struct kvpi_tags_line *kvpi_tags_line(const struct kvpi_tags *tags, uint32_t line)
{
    struct kvpi_tags_line *lines = kvpi_at(tags, tags->lines_at);
    return lines + line;
}

static inline uint32_t kvpi_tags_home(const struct kvpi_tags *tags, uint32_t tag)
{
    return (uint32_t)(((uint64_t)tag * tags->n_lines) >> 32);
}

/* The line after this one, around the end. */
static inline uint32_t kvpi_tags_after(const struct kvpi_tags *tags, uint32_t line)
{
    return line + 1 == tags->n_lines ? 0 : line + 1;
}

static inline uint16_t kvpi_tags_mark(uint32_t tag)
{
    const uint16_t mark = (uint16_t)tag;
    return mark != 0 ? mark : 1;
}

/* Four marks as one number, the first in its low bits: compilers make one load of it. */
static inline uint64_t kvpi_tags_four(const uint16_t *mark)
{
    return mark[0] | (uint64_t)mark[1] << 16 | (uint64_t)mark[2] << 32 | (uint64_t)mark[3] << 48;
}

/* A set of places with this mark (0: empty ones), in no order of theirs. The first of it has the
 * mark; others may not: a borrow makes the mark above a found one look found, if it differs in its
 * lowest bit. */
static inline uint64_t kvpi_tags_places(const struct kvpi_tags_line *line, uint16_t mark)
{
    const uint64_t ones = 0x0001000100010001u;
    const uint64_t tops = 0x8000800080008000u;
    const uint64_t same = ones * mark;
    const uint64_t a = kvpi_tags_four(&line->mark[0]) ^ same;
    const uint64_t b = kvpi_tags_four(&line->mark[4]) ^ same;
    const uint64_t c = (line->mark[8] | (uint64_t)line->mark[9] << 16) ^ (same & UINT32_MAX);
    return ((a - ones) & ~a & tops) >> 15 | ((b - ones) & ~b & tops) >> 14 |
           ((c - ones) & ~c & tops & UINT32_MAX) >> 13;
}

/* The place that the first of a set, which is not empty, stands for. */
static inline uint32_t kvpi_tags_first(uint64_t places)
{
    const uint32_t bit = (uint32_t)__builtin_ctzll(places);
    return bit % 16 * 4 + bit / 16;
}

/* A search for the nodes of one tag. */
struct kvpi_tags_search {
    uint64_t places; /* of the line, that were not looked at */
    uint32_t home;
    uint32_t line;
    uint16_t mark;
};

static inline struct kvpi_tags_search kvpi_tags_search(const struct kvpi_tags *tags, uint32_t tag)
{
    const uint32_t home = kvpi_tags_home(tags, tag);
    const uint16_t mark = kvpi_tags_mark(tag);
    return (struct kvpi_tags_search){kvpi_tags_places(kvpi_tags_line(tags, home), mark), home, home,
                                     mark};
}

/* The next node that may have the tag; 0: there is none. */
static inline uint32_t kvpi_tags_next(const struct kvpi_tags *tags, struct kvpi_tags_search *search)
{
    for (;;) {
        const struct kvpi_tags_line *line = kvpi_tags_line(tags, search->line);
        while (search->places != 0) {
            const uint32_t place = kvpi_tags_first(search->places);
            search->places &= search->places - 1;
            if (line->mark[place] == search->mark) {
                return line->node[place];
            }
        }
        const uint32_t after = kvpi_tags_after(tags, search->line);
        if (line->n_beyond == 0 || after == search->home) {
            return 0;
        }
        search->line = after;
        search->places = kvpi_tags_places(kvpi_tags_line(tags, after), search->mark);
    }
}

/* Plan the lines for n_nodes nodes; `self`: its own offset. */
void kvpi_tags_layout(struct kvpi_tags *tags, struct kvpi_layout *layout, size_t self,
                      uint32_t n_nodes);

/* Forget every entry. */
void kvpi_tags_reset(struct kvpi_tags *tags);

/* Add a node, which is not there. */
void kvpi_tags_add(struct kvpi_tags *tags, uint32_t tag, uint32_t node);

/* Remove a node, which is there under this tag. */
void kvpi_tags_remove(struct kvpi_tags *tags, uint32_t tag, uint32_t node);

/* For the audit of I1: take one off what the lines count for an entry of `line`, or with by = 1 put
 * it back. */
void kvpi_tags_pass(struct kvpi_tags *tags, uint32_t tag, uint32_t line, uint32_t by);

#endif
